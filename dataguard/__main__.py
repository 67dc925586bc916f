"""``python -m dataguard``, where the script is not on the path."""

from __future__ import annotations

import sys

from dataguard.cli.main import main

sys.exit(main())
