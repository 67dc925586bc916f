"use strict";
// What the page of a run does beside being read: it draws the curves, opens the cells of the heat maps by pointer and by
// keyboard, shows one signal large, and filters the journal.
(() => {
  const { find, make, count, short, label, data, colours, hover, drawing, copying, isPrinting } = dataguard;
  const value = (number) => (number === null || number === undefined ? "no value" : short(number));
  const span = (start, stop) => (stop === start + 1 ? `step ${count(start)}` : `steps ${count(start)}:${count(stop)}`);
  const tint = (colour, part) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},${part})`;
  };
  const GRAVE = new Set(["transient_spike", "absorbing_shift", "hard_fault"]);
  const eventColour = (event) => (GRAVE.has(event.class) ? colours().grave : event.class === "loss_dip" ? colours().accent : colours().flag);
  const settings = { displayModeBar: false, responsive: false, doubleClick: "reset+autosize", scrollZoom: false };
  const layoutOf = (width, height) => ({
    width, height, showlegend: false, hovermode: "closest", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colours().soft }, hoverlabel: { ...hover(), align: "left" },
    dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
  });
  const axis = () => ({ gridcolor: colours().line, zeroline: false, linecolor: colours().line, tickfont: { size: 11 }, automargin: false });

  // ---- the curves
  const chart = find("#curves");
  const ranks = find("#curve-ranks");
  const more = find("#curve-more");
  const log = find("#curve-log");
  const LANE = 19, PANEL = 190, GAP = 26, TOP = 22, BOTTOM = 34;
  const MOST_ATTEMPTS = 8;
  const first = data.steps ? data.steps[0] : Math.min(...data.attempts.map((each) => each.begins), ...data.curves.map((each) => each.steps[0] ?? 0));
  const last = Math.max(first + 1, data.steps ? data.steps[1] : 0, ...data.attempts.map((each) => each.ends ?? each.begins), ...data.curves.map((each) => each.steps[each.steps.length - 1] ?? 0));
  const whole = [first - (last - first) * 0.01, last + (last - first) * 0.01];

  const columns = (curve) => {
    const x = [], y = [], told = [];
    const name = curve.rank === null ? "" : `, rank ${curve.rank}`;
    curve.steps.forEach((start, i) => {
      const high = curve.high[i], low = curve.low ? curve.low[i] : high;
      const stop = curve.steps[i + 1] ?? start + 1;
      const where = span(start, Math.max(stop, start + 1)) + name;
      x.push(start); y.push(high); told.push(high === null ? "" : low === high ? `${value(high)}<br>${where}` : `${value(low)} to ${value(high)}<br>${where}`);
      if (low !== high) { x.push(start); y.push(low); told.push(told[told.length - 1]); }
    });
    return { x, y, told };
  };
  const isLog = (place) => data.panels[place].is_log || (log && log.checked && data.has_loss && place === 0);
  const boundsOf = (place) => {
    const panel = data.panels[place];
    if (isLog(place) === panel.is_log) return panel.bounds;
    const values = data.curves.filter((curve) => curve.panel === place).flatMap((curve) => [...(curve.low ?? curve.high)]).filter((each) => each > 0);
    const [low, high] = [Math.log10(Math.min(...values)), Math.log10(Math.max(panel.bounds[1], Math.min(...values) * 1.01))];
    return [low - (high - low) * 0.04, high];
  };
  const lanes = () => {
    const rows = [];
    if (data.events.length) rows.push({ name: "events" });
    if (data.skips.some((skip) => skip.step !== null)) rows.push({ name: "skips" });
    if (data.checkpoints.length) rows.push({ name: "checkpoints" });
    for (const attempt of data.attempts.slice(-MOST_ATTEMPTS)) rows.push({ name: `attempt ${attempt.number}`, attempt });
    return rows;
  };
  const bar = (row, from, to, colour, text) => ({
    type: "bar", orientation: "h", base: [from], x: [Math.max(to - from, 0)], y: [row], width: 0.62,
    marker: { color: colour, line: { color: colour, width: 1 } }, customdata: [text], hovertemplate: "%{customdata}<extra></extra>",
  });

  function draw() {
    const tones = colours();
    const shown = data.panels.slice(0, data.num_first).map((_, place) => place);
    if (more && more.value !== "") shown.push(Number(more.value));
    const rows = lanes();
    const height = TOP + BOTTOM + shown.length * PANEL + Math.max(0, shown.length - 1) * GAP + (rows.length ? rows.length * LANE + (shown.length ? GAP : 0) : 0);
    const inside = height - TOP - BOTTOM;
    const width = isPrinting() ? 640 : chart.clientWidth;
    const narrow = width < 560;
    const layout = { ...layoutOf(width, height), margin: { l: narrow ? 74 : 92, r: 12, t: TOP, b: BOTTOM }, barmode: "overlay", annotations: [], shapes: [], uirevision: "curves" };
    const traces = [];
    let at = inside;
    shown.forEach((place, i) => {
      const panel = data.panels[place];
      const name = i ? `y${i + 1}` : "y";
      layout[`yaxis${i ? i + 1 : ""}`] = {
        ...axis(), domain: [(at - PANEL) / inside, at / inside], type: isLog(place) ? "log" : "linear", range: boundsOf(place), anchor: "x",
        nticks: 6, uirevision: `${place} ${isLog(place)}`, ...(isLog(place) ? { dtick: boundsOf(place)[1] - boundsOf(place)[0] > 2.5 ? 1 : "D2" } : {}),
      };
      layout.annotations.push({
        xref: "paper", x: 0, xanchor: "left", yref: "paper", y: at / inside, yanchor: "bottom", showarrow: false, yshift: 2,
        text: label(panel.title), font: { size: 12, color: tones.ink },
      });
      at -= PANEL + GAP;
      const chosen = ranks ? ranks.value : "";
      const own = data.curves.filter((curve) => curve.panel === place);
      const alone = !own.some((curve) => curve.rank === null);
      for (const curve of own.slice().sort((a, b) => (a.rank === null) - (b.rank === null))) {
        const one = curve.rank !== null && String(curve.rank) === chosen;
        if (curve.rank !== null && !one && chosen !== "all" && !alone) continue;
        const { x, y, told } = columns(curve);
        const colour = curve.rank === null ? tones.accent : one ? tones.flag : tones.bar;
        traces.push({
          type: "scatter", mode: curve.steps.length === 1 ? "markers" : "lines", x, y, yaxis: name, customdata: told, hovertemplate: "%{customdata}<extra></extra>",
          line: { color: colour, width: curve.rank === null || one ? 1.5 : 0.8 }, marker: { color: colour, size: 6 }, opacity: curve.rank === null || one ? 1 : 0.7,
        });
        if (curve.bad.length) {
          const top = isLog(place) ? 10 ** boundsOf(place)[1] : boundsOf(place)[1];
          traces.push({
            type: "scatter", mode: "markers", x: curve.bad.map((each) => each[0]), y: curve.bad.map(() => top), yaxis: name, cliponaxis: false,
            marker: { symbol: "x", size: 9, color: tones.grave }, hovertemplate: "%{customdata}<extra></extra>",
            customdata: curve.bad.map(([step, number]) => `${count(number)} NaN or infinite, from step ${count(step)}${curve.rank === null ? "" : `, rank ${curve.rank}`}`),
          });
        }
      }
    });
    const foot = rows.length ? (rows.length * LANE) / inside : 0;
    if (rows.length) {
      const name = shown.length ? `y${shown.length + 1}` : "y";
      const lane = (trace) => traces.push({ ...trace, yaxis: name });
      layout[`yaxis${shown.length ? shown.length + 1 : ""}`] = {
        ...axis(), domain: [0, foot], range: [rows.length - 0.5, -0.5], tickvals: rows.map((_, i) => i), ticktext: rows.map((row) => row.name),
        fixedrange: true, showgrid: false, anchor: "x",
      };
      rows.forEach((row, i) => {
        if (row.name === "events") for (const event of data.events) lane(bar(i, event.start, event.stop, eventColour(event), `${label(event.class.replaceAll("_", " "))}, ${span(event.start, event.stop)}<br>${label(clip(event.text))}`));
        if (row.name === "skips") {
          const applied = data.skips.filter((skip) => skip.step !== null);
          lane({
            type: "scatter", mode: "markers", x: applied.map((skip) => skip.step), y: applied.map(() => i), marker: { symbol: "diamond", size: 9, color: tones.flag },
            customdata: applied.map((skip) => `skip of batches ${count(skip.batches[0])}:${count(skip.batches[1])}, ${label(skip.state)}<br>${label(clip(skip.reason))}`), hovertemplate: "%{customdata}<extra></extra>",
          });
        }
        if (row.name === "checkpoints") lane({
          type: "scatter", mode: "markers", x: data.checkpoints.map((each) => each[0]), y: data.checkpoints.map(() => i), marker: { symbol: "triangle-up", size: 7, color: tones.soft },
          customdata: data.checkpoints.map(([step, path]) => `checkpoint before step ${count(step)}<br>${label(clip(path))}`), hovertemplate: "%{customdata}<extra></extra>",
        });
        if (row.attempt) {
          const { begins, ends, live_until: live, world_size: size, parent } = row.attempt;
          const told = `${row.name}${parent === null ? "" : ` from attempt ${parent}`}, ${count(size)} ranks<br>`;
          if (ends === null) lane(bar(i, begins, begins, tones.soft, `${told}no step of it is complete`));
          if (ends !== null && (live === null || live < ends)) lane(bar(i, live ?? begins, ends, tint(tones.bar, 0.3), `${told}${span(live ?? begins, ends)}, abandoned`));
          if (live !== null) lane(bar(i, begins, live, tones.bar, `${told}${span(begins, live)}, live`));
        }
      });
    }
    for (const event of data.events) layout.shapes.push({
      type: "rect", layer: "below", yref: "paper", y0: foot, y1: 1, x0: event.start, x1: event.stop, fillcolor: tint(eventColour(event), 0.16), line: { color: tint(eventColour(event), 0.4), width: 1 },
    });
    const upright = (x, colour, dash) => layout.shapes.push({ type: "line", layer: "below", yref: "paper", y0: foot, y1: 1, x0: x, x1: x, line: { color: colour, width: 1.2, dash } });
    for (const skip of data.skips) if (skip.step !== null) upright(skip.step, tones.flag, "dash");
    for (const attempt of data.attempts) if (attempt.parent !== null && attempt.live_until !== null) upright(attempt.begins, tones.soft, "dot");
    layout.xaxis = { ...axis(), range: whole, anchor: rows.length && shown.length ? `y${shown.length + 1}` : shown.length > 1 ? `y${shown.length}` : "y", nticks: narrow ? 5 : 10, tickformat: ",d", title: { text: "step", font: { size: 12 }, standoff: 4 } };
    Plotly.react(chart, traces, layout, settings);
  }
  const clip = (text) => ([...text].length > 90 ? [...text].slice(0, 89).join("") + "…" : text);
  const zoom = (from, to) => {
    const changes = { "xaxis.range": [from, to] };
    data.panels.slice(0, data.num_first).forEach((_, i) => { changes[`yaxis${i ? i + 1 : ""}.range`] = boundsOf(i); });
    Plotly.relayout(chart, changes);
  };

  if (chart) {
    const option = (select, text, key) => {
      const made = make("option", text);
      made.value = key;
      select.append(made);
    };
    if (ranks) {
      const known = [...new Set(data.curves.map((curve) => curve.rank).filter((rank) => rank !== null))].sort((a, b) => a - b);
      option(ranks, "all of them as one", "");
      if (known.length) option(ranks, "every one", "all");
      for (const rank of known) option(ranks, `rank ${rank}`, String(rank));
      option(more, "none", "");
      data.panels.forEach((panel, i) => { if (i >= data.num_first) option(more, panel.title, String(i)); });
      ranks.parentElement.hidden = !known.length;
      more.parentElement.hidden = data.panels.length <= data.num_first;
      const lossLow = data.curves.filter((curve) => curve.panel === 0).flatMap((curve) => curve.low ?? curve.high).filter((each) => each !== null);
      log.parentElement.hidden = !data.has_loss || data.panels[0].is_log || !lossLow.length || lossLow.some((each) => each <= 0);
      for (const each of [ranks, more, log]) each.addEventListener("change", draw);
    }
    find("#curve-all").addEventListener("click", () => zoom(...whole));
    for (const button of document.querySelectorAll("button[data-event]")) {
      button.addEventListener("click", () => {
        const event = data.events[Number(button.dataset.event)];
        const room = Math.max(12, 3 * (event.stop - event.start));
        zoom(event.start - room, event.stop + room);
        find("#curve").scrollIntoView();
      });
    }
    draw();
    drawing(chart, draw);
  }

  // ---- the heat maps
  const signOf = (sign) => `q${sign === "-" ? "x" : sign}`;
  const KINDS = new Set(["text", "escape", "note", "cut"]);
  const textOf = (place) => data.texts[place];

  function look(box, place) {
    if (place === null || place === undefined) {
      box.append(make("div", "Its content was not read for this page; the command above shows it.", "unseen"));
      return;
    }
    const found = data.previews[place];
    if (found.problem !== null) box.append(make("div", `It cannot be shown: ${found.problem}`, "unseen"));
    if (!found.parts.length) return;
    const places = found.num_spans === 1 ? "1 place" : `${count(found.num_spans)} places`;
    box.append(make("div", found.signal !== null && found.num_spans ? `marked: ${found.signal} in ${places}` : "nothing is marked in it", "what"));
    const text = make("bdi", undefined, "text");
    for (const [kind, marked, part] of found.parts) {
      const piece = kind === "text" || !KINDS.has(kind) ? document.createTextNode(part) : make("span", part, kind);
      if (!marked) { text.append(piece); continue; }
      const open = text.lastElementChild === text.lastChild && text.lastChild?.tagName === "MARK" ? text.lastChild : text.appendChild(make("mark"));
      open.append(piece);
    }
    box.append(text);
  }

  function sampleOf([microbatch, slot, position, source, shard, row, status, digest, outlying, loss, preview, verdict, delivered, rules, why]) {
    const box = make("li");
    const head = make("div", undefined, "head");
    const name = make("span", undefined, "name");
    name.append(make("bdi", textOf(shard)), `:${row}`);
    head.append(name);
    if (outlying) head.append(make("span", "stands out", "pill flag"));
    const pill = (word) => head.append(make("span", word.replaceAll("_", " "), `pill ${/^[a-z_]+$/.test(word) ? word : ""}`));
    if (verdict !== null && verdict !== undefined) pill(textOf(verdict));
    if (textOf(status) !== "live") pill(textOf(status));
    const about = make("div", `microbatch ${microbatch}, slot ${slot} · position ${count(position)} · source `, "values");
    about.append(make("bdi", textOf(source), "name"));
    if (loss !== null && loss !== undefined) about.append(" · own loss ", make("strong", loss));
    if (rules) about.append(` · fired: ${rules.map(textOf).join(", ")}`);
    box.append(head, about);
    if (delivered) {
      const instead = make("div", "instead of it was delivered ", "values");
      instead.append(make("bdi", textOf(delivered[0]), "name"), `:${delivered[1]}`);
      box.append(instead);
    }
    if (why) {
      const reasons = make("ul", undefined, "reasons small");
      for (const each of why) reasons.append(make("li", textOf(each)));
      box.append(reasons);
    }
    look(box, preview);
    box.append(make("div", `digest ${digest}`, "what name"));
    return box;
  }

  function mapOf(box) {
    const map = data.maps[Number(box.dataset.map)];
    const table = box.querySelector("table");
    const rows = [...table.tBodies[0].rows];
    const chooser = box.querySelector(".measure");
    const readout = box.querySelector(".readout");
    const opened = box.querySelector(".opened");
    const cells = new Map(map.cells.map((cell) => [cell[0] * map.steps.length + cell[1], cell]));
    if (!map.ranks.length || !map.steps.length || !map.measures.length) return;
    const at = (rank, step) => rows[rank].cells[step + 1];
    const placeOf = (cell) => [cell.parentElement.rowIndex - 1, cell.cellIndex - 1];
    const worded = (measure, rank, step) => (measure.signs[rank][step] === "n" ? "NaN or infinite" : measure.values[rank][step] === null ? "no value" : short(measure.values[rank][step]));
    let current = [0, 0];
    let selected = null;

    const shade = () => {
      const measure = map.measures[Number(chooser.value)];
      rows.forEach((row, rank) => map.steps.forEach((_, step) => {
        const cell = row.cells[step + 1];
        const kept = [...cell.classList].filter((name) => !/^q.$/.test(name));
        cell.className = [signOf(measure.signs[rank][step]), ...kept].join(" ");
        cell.textContent = worded(measure, rank, step) + (kept.includes("out") ? ", a sample stands out" : "");
      }));
      box.querySelector(".ticks").replaceChildren(...measure.ticks.map((tick) => make("span", tick)));
      box.querySelector(".scale").hidden = !measure.ticks.length;
      table.setAttribute("aria-label", `${measure.title} by rank and step, ${box.querySelector("h3").textContent}`);
      tell(...current);
    };
    const tell = (rank, step) => {
      const measure = map.measures[Number(chooser.value)];
      const cell = cells.get(rank * map.steps.length + step);
      const odd = cell ? cell[5].filter((sample) => sample[8]).length : 0;
      const parts = [`rank ${map.ranks[rank]}, step ${count(map.steps[step])}, ${measure.title}: ${worded(measure, rank, step)}`];
      if (cell) parts.push(`${count(cell[3])} samples, attempt ${cell[2]}`); else parts.push("nothing was recorded");
      if (odd) parts.push(`${count(odd)} stand out`);
      readout.textContent = parts.join(" · ");
    };
    const go = (rank, step, focus = true) => {
      at(...current).tabIndex = -1;
      current = [Math.min(Math.max(rank, 0), map.ranks.length - 1), Math.min(Math.max(step, 0), map.steps.length - 1)];
      const cell = at(...current);
      cell.tabIndex = 0;
      if (focus) cell.focus();
      tell(...current);
    };
    const close = () => {
      opened.hidden = true;
      opened.replaceChildren();
      if (selected) selected.removeAttribute("aria-selected");
      selected = null;
      go(...current);
    };
    const open = (rank, step, byKey) => {
      if (selected) selected.removeAttribute("aria-selected");
      selected = at(rank, step);
      selected.setAttribute("aria-selected", "true");
      const cell = cells.get(rank * map.steps.length + step);
      const top = make("div", undefined, "top");
      const title = make("h4", `Rank ${map.ranks[rank]} at step ${count(map.steps[step])}${cell ? `, attempt ${cell[2]}` : ""}`);
      title.tabIndex = -1;
      const shut = make("button", "Close", "plain");
      shut.type = "button";
      shut.addEventListener("click", close);
      top.append(title, shut);
      opened.replaceChildren(top, make("p", map.measures.map((measure) => `${measure.title}: ${worded(measure, rank, step)}`).join(" · "), "values"));
      if (!cell) opened.append(make("p", "Nothing was recorded of what this rank was fed at this step.", "empty"));
      else {
        const listed = cell[5].length;
        opened.append(make("p", listed < cell[3] ? `${count(listed)} of ${count(cell[3])} samples are listed here; this shows all of them:` : `What it was fed: ${count(listed)} sample${listed === 1 ? "" : "s"}. The same in a terminal:`, "small"));
        const command = make("code", cell[4], "command");
        command.tabIndex = 0;
        command.dataset.copy = "";
        opened.append(command);
        copying(opened);
        const list = make("ol", undefined, "records");
        list.append(...cell[5].map(sampleOf));
        opened.append(list);
      }
      opened.hidden = false;
      if (byKey) title.focus();
      (byKey ? title : top).scrollIntoView({ block: "nearest" });
    };

    table.addEventListener("click", (event) => {
      const cell = event.target.closest("td");
      if (!cell) return;
      go(...placeOf(cell));
      open(...current, false);
    });
    table.addEventListener("mouseover", (event) => {
      const cell = event.target.closest("td");
      if (cell) tell(...placeOf(cell));
    });
    table.addEventListener("mouseleave", () => tell(...current));
    table.addEventListener("focusin", () => tell(...current));
    table.addEventListener("keydown", (event) => {
      const [rank, step] = current;
      const moves = {
        ArrowUp: [rank - 1, step], ArrowDown: [rank + 1, step], ArrowLeft: [rank, step - 1], ArrowRight: [rank, step + 1],
        Home: [event.ctrlKey ? 0 : rank, 0], End: [event.ctrlKey ? map.ranks.length - 1 : rank, map.steps.length - 1],
        PageUp: [rank - 8, step], PageDown: [rank + 8, step],
      };
      if (event.key === "Enter" || event.key === " ") open(rank, step, true);
      else if (moves[event.key]) go(...moves[event.key]);
      else return;
      event.preventDefault();
    });
    opened.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
    opened.setAttribute("role", "region");
    opened.setAttribute("aria-label", "What the rank was fed");
    chooser.addEventListener("change", shade);
    const peak = table.querySelector("thead .peak");
    const column = peak ? peak.cellIndex - 1 : 0;
    const atPeak = (name) => rows.map((row) => row.cells[column + 1]).find((cell) => cell.classList.contains(name));
    const odd = atPeak("out") ?? table.querySelector("tbody .out") ?? atPeak("qn");
    go(...(odd ? placeOf(odd) : [0, column]), false);
    const show = () => {  // what stands out is in sight from the beginning, also on a phone
      const frame = table.parentElement;
      const cell = at(...current);
      frame.scrollLeft = cell.offsetLeft - frame.clientWidth / 2;
      if (cell.offsetTop + cell.offsetHeight > frame.clientHeight) frame.scrollTop = cell.offsetTop - frame.clientHeight / 2;
    };
    show();
    box.addEventListener("toggle", show);
  }
  for (const box of document.querySelectorAll("details.map")) {
    const chooser = box.querySelector(".measure");
    chooser.parentElement.hidden = chooser.options.length < 2;
    if (box.open) mapOf(box);
    else box.addEventListener("toggle", () => mapOf(box), { once: true });  // thousands of cells, when they are looked at
  }

  // ---- one signal, large
  const large = find("#signal-chart");
  let signal = null;
  const drawSignal = () => {
    if (signal === null) return;
    const tones = colours();
    const told = signal.steps.map((start, i) => `median ${value(signal.median[i])}<br>5% ${value(signal.low[i])}, 95% ${value(signal.high[i])}<br>${span(start, signal.steps[i + 1] ?? start + 1)}, ${count(signal.num_samples[i])} samples`);
    const line = { type: "scatter", x: signal.steps, mode: signal.steps.length === 1 ? "markers" : "lines", customdata: told, hovertemplate: "%{customdata}<extra></extra>" };
    const width = isPrinting() ? 640 : large.clientWidth;
    const layout = {
      ...layoutOf(width, 260), margin: { l: 62, r: 12, t: 10, b: 34 }, uirevision: signal.name,
      xaxis: { ...axis(), range: whole, nticks: width < 560 ? 5 : 10, tickformat: ",d", title: { text: "step", font: { size: 12 }, standoff: 4 } },
      yaxis: { ...axis(), nticks: 6 },
      shapes: data.events.map((event) => ({ type: "rect", layer: "below", yref: "paper", y0: 0, y1: 1, x0: event.start, x1: event.stop, fillcolor: tint(eventColour(event), 0.16), line: { color: tint(eventColour(event), 0.4), width: 1 } })),
    };
    Plotly.react(large, [
      { ...line, y: signal.low, line: { width: 0, color: tones.bar } },
      { ...line, y: signal.high, line: { width: 0, color: tones.bar }, fill: "tonexty", fillcolor: tint(tones.bar, 0.28) },
      { ...line, y: signal.median, line: { width: 1.8, color: tones.accent }, marker: { color: tones.accent } },
    ], layout, settings);
    large.setAttribute("aria-label", `${signal.name} by step: median, 5% and 95% quantile`);
  };
  const chosen = [...document.querySelectorAll("button[data-signal]")];
  for (const button of chosen) {
    button.addEventListener("click", () => {
      for (const each of chosen) each.setAttribute("aria-pressed", String(each === button));
      signal = data.signals[Number(button.dataset.signal)];
      find("#signal-large").hidden = false;
      find("#signal-definition").textContent = `${signal.name}, ${signal.unit}${signal.note === null ? "" : `; ${signal.note}`}`;
      drawSignal();
      find("#signal-large").scrollIntoView({ block: "nearest" });
    });
  }
  if (chosen.length) drawing(large, drawSignal);

  // ---- the journal
  const kind = find("#journal-kind");
  if (kind) kind.addEventListener("change", () => {
    for (const row of find("#journal-rows").tBodies[0].rows) row.hidden = kind.value !== "" && row.dataset.kind !== kind.value;
  });
})();
