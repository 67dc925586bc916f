"""``dataguard policy init | check | explain``: parse, call one function, answer.

`check` ends with 0 where there is no problem and with 2 where there is one: a policy that cannot be is a matter of
usage. `explain` ends with 3 where the record cannot be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dataguard.cli import completing, output
from dataguard.cli.options import PATH, POLICY_NAMES, cache_dir_option, json_option, root_option
from dataguard.errors import UsageError

if TYPE_CHECKING:
    from dataguard.gate.answers import PolicyWritten
    from dataguard.gate.problem import Problem
    from dataguard.score.profile import Profile

__all__ = ["policy", "write_policy"]

_POLICY = "POLICY is a file, or the name of one that ships: default, gopher, olmo, seed-batch."

_policy_argument = click.argument(
    "name_or_path", metavar="POLICY", shell_complete=completing.names_or_files(*POLICY_NAMES)
)
_profile_option = click.option("--profile", type=PATH, help="The reference profile of an audit (profile.json).")
_vocab_option = click.option("--vocab-size", type=click.IntRange(min=1), help="Ids of the vocabulary.")


@click.group()
def policy() -> None:
    """Write, check or explain a policy: rules over signals, and what becomes of samples on which they fire.

    Examples: dataguard policy init -o policy.toml
    dataguard policy check policy.toml --manifest M.parquet
    """


@policy.command(short_help="Write a commented policy to edit.")
@click.option(
    "-o",
    "--out",
    type=PATH,
    default=Path("policy.toml"),
    show_default=True,
    help="The file to write; it must not exist.",
)
@click.option(
    "--from",
    "based_on",
    type=click.Choice(POLICY_NAMES),
    default="default",
    show_default=True,
    help="What to begin with.",
)
@json_option
def init(out: Path, based_on: str, as_json: bool) -> None:
    """Write a policy to edit, with a comment for every key and the origin of every threshold.

    Examples: dataguard policy init -o policy.toml
    dataguard policy init --from gopher -o strict.toml
    """
    from dataguard.report.policy import render_written

    output.answer(write_policy(out, based_on), render_written, json=as_json)


def write_policy(out: Path, based_on: str) -> PolicyWritten:
    """Write a copy of a policy that ships, with its comments, under a name that is free.

    Raises
    ------
    UsageError
        Something is called so already, or it is no name of a policy.
    """
    from dataguard.gate.answers import PolicyWritten
    from dataguard.gate.policy import policy_copy

    written = policy_copy(based_on, name=out.name.removesuffix(".toml"))
    try:
        with out.open("xb") as file:
            file.write(written.text.encode())
    except FileExistsError:
        raise UsageError(f"{out} is there already, and is not overwritten", todo="give another name with -o") from None
    return PolicyWritten(path=str(out), name=written.name, based_on=based_on, digest=written.digest)


@policy.command(epilog=_POLICY)
@_policy_argument
@click.option(
    "--manifest", metavar="M", shell_complete=completing.files, help="Check its sources against those of this manifest."
)
@_profile_option
@_vocab_option
@json_option
def check(name_or_path: str, manifest: str | None, profile: Path | None, vocab_size: int | None, as_json: bool) -> int:
    """Name every problem of a policy at once, each with its line.

    Unknown keys and signals, bounds outside of what a signal can be, rules with one name, rules that can never fire or
    always do; with --manifest also sources that do not exist. What rules need and lack is a remark.

    Examples: dataguard policy check policy.toml
    dataguard policy check policy.toml --manifest M.parquet --profile AUDIT/profile.json
    """
    from dataguard.gate.answers import checked
    from dataguard.gate.fitting import fit_problems, lacking_problems
    from dataguard.gate.policy import POLICY_NAMES, check_policy, policy_text, read_policy_text, stem_of
    from dataguard.report.policy import render_checked

    named = name_or_path in POLICY_NAMES
    text = policy_text(name_or_path) if named else read_policy_text(name_or_path)
    found, problems = check_policy(text, name=stem_of(name_or_path))
    if manifest is None and (profile is not None or vocab_size is not None):
        raise UsageError("a profile or a vocabulary is of use beside the sources there are", todo="give --manifest M")
    if manifest is None:
        answer = checked(name_or_path, found, problems)
    else:
        from dataguard.corpus.manifest_read import read_manifest

        sources = read_manifest(manifest).manifest.sources
        names, kinds = [source.name for source in sources], [source.kind for source in sources]
        remarks: tuple[Problem, ...] = ()
        if found is not None:
            problems = fit_problems(found, names, kinds)
            remarks = lacking_problems(found, names, kinds, profile=_profile(profile), vocab_size=vocab_size)
        answer = checked(name_or_path, found, problems, remarks=remarks, sources=names)
    output.answer(answer, render_checked, json=as_json)
    return 0 if answer.ok else UsageError.exit_code


@policy.command(epilog=_POLICY, short_help="Say what a policy means, or what it says of one record.")
@_policy_argument
@click.option("--manifest", metavar="M", shell_complete=completing.files, help="The manifest that has the record.")
@click.option("--shard", metavar="SHARD", shell_complete=completing.records, help="The record's shard, SOURCE/path.")
@click.option("--row", type=click.IntRange(min=0), help="Its row; of a token shard the number of the window.")
@root_option
@_profile_option
@_vocab_option
@click.option("--seq-len", type=click.IntRange(min=1), help="Tokens of a window, for token shards.")
@cache_dir_option
@json_option
def explain(
    name_or_path: str,
    manifest: str | None,
    shard: str | None,
    row: int | None,
    roots: dict[str, str],
    profile: Path | None,
    vocab_size: int | None,
    seq_len: int | None,
    as_json: bool,
) -> None:
    """Say what a policy means; with --manifest, --shard and --row, every signal of one record beside its rules.

    Examples: dataguard policy explain default
    dataguard policy explain default --manifest M.parquet --shard web/a.jsonl.zst --row 17
    """
    from dataguard.gate.answers import shown
    from dataguard.gate.policy import load_policy
    from dataguard.report.policy import render_explained, render_shown

    rules = load_policy(name_or_path)
    if manifest is None and shard is None and row is None:
        output.answer(shown(rules), render_shown, json=as_json)
        return
    if manifest is None or shard is None or row is None:
        given = {"--manifest": manifest, "--shard": shard, "--row": row}
        lacking = [name for name, value in given.items() if value is None]
        verb = "is" if len(lacking) == 1 else "are"
        raise UsageError(
            f"which record? {' and '.join(lacking)} {verb} missing", allowed="--manifest M --shard SOURCE/path --row R"
        )
    from dataguard.audit.explain import explain_record
    from dataguard.corpus.corpus import Corpus

    explained = explain_record(
        rules,
        Corpus.open(manifest, roots),
        shard,
        row,
        profile=_profile(profile),
        vocab_size=vocab_size,
        seq_len=seq_len,
    )
    output.answer(explained.document, lambda document: render_explained(document, explained.content), json=as_json)


def _profile(path: Path | None) -> Profile | None:
    if path is None:
        return None
    from dataguard.score.profile import read_profile

    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the profile {path} cannot be read", found=error.strerror) from error
    return read_profile(content)
