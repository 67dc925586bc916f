"use strict";
// What the page of an audit does beside being read: it sorts and filters the rules, and draws one chart at a time.
(() => {
  const { find, make, count, percent, short, label, data, colours, hover, drawing, isPrinting } = dataguard;

  // ---- the rules
  const rules = find("#rule-list");
  const order = find("#rule-order");
  const only = find("#rule-fired");
  const arrange = () => {
    const entries = [...rules.children];
    const by = order.value;
    entries.sort((a, b) => {
      const left = Number(a.dataset.place), right = Number(b.dataset.place);
      if (by === "policy") return left - right;
      if (by === "name") return a.dataset.name < b.dataset.name ? -1 : a.dataset.name > b.dataset.name ? 1 : left - right;
      return Number(b.dataset[by]) - Number(a.dataset[by]) || left - right;
    });
    for (const entry of entries) {
      rules.append(entry);
      entry.hidden = only.checked && Number(entry.dataset.fired) === 0;
    }
  };
  if (rules && order) {
    order.addEventListener("change", arrange);
    only.addEventListener("change", arrange);
  }

  // ---- the charts
  const chart = find("#chart");
  const chosen = find("#signal");
  const sources = find("#sources");
  const FEW = 12;
  const ROW = 62;
  const value = (signal, place) =>
    signal.scale === "log" ? Math.sign(place) * (10 ** Math.abs(place) - 1) : place;
  const span = (signal, bin) => {
    const start = signal.start + bin * signal.width;
    if (signal.scale === "whole") return short(Math.round(start + signal.width / 2));
    return `${short(Number(value(signal, start).toPrecision(3)))} to ${short(Number(value(signal, start + signal.width).toPrecision(3)))}`;
  };
  const isGrave = (action) => action !== "flag";
  const tone = (signal, bin, shades) => {
    const middle = signal.start + (bin + 0.5) * signal.width;
    const holding = signal.rules.filter((rule) =>
      rule.inside.some(([low, high]) => (low === null || middle >= low) && (high === null || middle <= high)));
    const order = [[true, true, "grave"], [true, false, "flag"], [false, true, "graveSoft"], [false, false, "flagSoft"]];
    const found = order.find(([alone, grave]) => holding.some((rule) => rule.alone === alone && isGrave(rule.action) === grave));
    return shades[found ? found[2] : "bar"];
  };
  const rowsOf = (signal) =>
    sources.value === "" ? signal.rows.slice(0, FEW) : signal.rows.filter((row) => String(row.source) === sources.value);

  function draw() {
    if (!chart || !data.signals.length) return;
    const shades = colours();
    const signal = data.signals[Number(chosen.value)];
    const rows = rowsOf(signal);
    const traces = [];
    const annotations = [];
    const shapes = [];
    const end = signal.start + signal.width * signal.num_bins;
    rows.forEach((row, at) => {
      const base = rows.length - 1 - at;
      const most = Math.max(...row.counts);
      const name = label(data.sources[row.source]);
      traces.push({
        type: "bar", base, width: signal.width * (signal.scale === "whole" ? 0.82 : 1),
        x: row.bins.map((bin) => signal.start + (bin + 0.5) * signal.width),
        y: row.counts.map((number) => Math.max(0.06, 0.62 * Math.sqrt(number / most))),
        marker: { color: row.bins.map((bin) => tone(signal, bin, shades)), line: { width: 0 } },
        customdata: row.bins.map((bin, i) => [name, span(signal, bin), count(row.counts[i]), percent(row.counts[i] / row.count)]),
        hovertemplate: "%{customdata[0]}<br>%{customdata[1]}<br>%{customdata[2]} records, %{customdata[3]}<extra></extra>",
      });
      traces.push({
        type: "scatter", mode: "markers", x: [row.median], y: [base - 0.07], cliponaxis: false,
        marker: { symbol: "triangle-up", size: 7, color: shades.ink },
        customdata: [[name, short(row.told[2])]], hovertemplate: "%{customdata[0]}<br>median %{customdata[1]}<extra></extra>",
      });
      shapes.push({ type: "line", layer: "below", xref: "paper", x0: 0, x1: 1, y0: base, y1: base, line: { color: shades.line, width: 1 } });
      annotations.push({
        xref: "paper", x: 0, xanchor: "left", y: base + 0.79, yanchor: "middle", showarrow: false, align: "left",
        text: label(clip(data.sources[row.source])) + `  <span style="font-size:11px">${count(row.count)}</span>`,
        font: { size: 12, color: shades.soft },
      });
    });
    let level = 0;
    for (const rule of signal.rules) {
      const colour = isGrave(rule.action) ? shades.grave : shades.flag;
      for (const [place, real, source] of rule.lines) {
        const at = source === null ? -1 : rows.findIndex((row) => row.source === source);
        if (source !== null && at < 0) continue;
        const base = rows.length - 1 - at;
        shapes.push({
          type: "line", x0: place, x1: place, y0: source === null ? -0.1 : base, y1: source === null ? rows.length + 0.05 : base + 0.75,
          line: { color: colour, width: 1.5, dash: rule.alone ? "solid" : "dot" },
        });
        if (source === null) {
          annotations.push({
            x: place, y: rows.length + 0.05, yanchor: "bottom", yshift: 13 * (level % 2), showarrow: false,
            xanchor: place > end - (end - signal.start) * 0.12 ? "right" : "center",
            text: short(real), font: { size: 11, color: colour },
          });
          level += 1;
        }
      }
    }
    const width = isPrinting() ? 640 : chart.clientWidth;
    const layout = {
      width, height: 74 + ROW * Math.max(rows.length, 1), margin: { l: 6, r: 10, t: 32, b: 42 }, barmode: "overlay", bargap: 0,
      showlegend: false, hovermode: "closest", dragmode: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: shades.soft }, annotations, shapes,
      hoverlabel: hover(),
      xaxis: {
        range: [signal.start - signal.width * 0.6, end + signal.width * 0.6], gridcolor: shades.line, zeroline: false, fixedrange: true,
        title: { text: label(signal.unit), font: { size: 12 } }, automargin: false,
        ...(signal.ticks.length ? { tickvals: thin(signal.ticks, width).map((tick) => tick[0]), ticktext: thin(signal.ticks, width).map((tick) => tick[1]) } : { nticks: width < 500 ? 5 : 9 }),
      },
      yaxis: { range: [-0.2, rows.length + 0.1], visible: false, fixedrange: true },
    };
    Plotly.react(chart, traces, layout, { displayModeBar: false, responsive: false, doubleClick: false, scrollZoom: false });
    tell(signal, rows);
  }
  const clip = (text) => ([...text].length > 44 ? [...text].slice(0, 43).join("") + "…" : text);
  const thin = (ticks, width) => {
    const step = Math.ceil(ticks.length / Math.max(3, Math.floor(width / 60)));
    return ticks.filter((_, i) => i % step === 0);
  };

  // The chart in words and numbers: what the signal is, what each rule says of it, and a table for those who see no chart.
  function tell(signal, rows) {
    find("#definition").textContent = `${signal.name}: ${signal.definition}`;
    chart.setAttribute("aria-label", `Distribution of ${signal.name} by source; the numbers stand in the table below.`);
    const key = find("#key");
    key.replaceChildren();
    for (const rule of signal.rules) {
      const done = rule.evaluated ? `fired on ${count(rule.fired)} of ${count(rule.evaluated)} (${percent(rule.fired / rule.evaluated)})` : "was not evaluated";
      const for_what = rule.minimum ? "; the line says for which records the rule is meant" : "";
      const entry = make("li", `${rule.name}, ${rule.action}: ${rule.text}; ${done}${for_what}`);
      if (isGrave(rule.action)) entry.classList.add("grave");
      if (!rule.alone) entry.classList.add("partly");
      key.append(entry);
    }
    if (!signal.rules.length) key.append(make("li", "No rule of the policy is over this signal.", "soft none"));
    const body = find("#numbers");
    body.replaceChildren();
    for (const row of rows) {
      const line = make("tr");
      const name = make("td");
      name.append(make("bdi", data.sources[row.source], "name"));
      line.append(name, make("td", count(row.count), "number"), ...row.told.map((each) => make("td", short(each), "number")));
      body.append(line);
    }
    const more = sources.value === "" ? signal.rows.length - rows.length : 0;
    const hidden = more + (sources.value === "" ? data.not_drawn : 0);
    find("#not-drawn").textContent = hidden > 0 ? `${count(hidden)} more sources are not drawn here${more ? "; choose one above" : ""}.` : "";
  }

  if (chart && data.signals.length) {
    const groups = { text: make("optgroup"), tokens: make("optgroup") };
    groups.text.label = "of texts";
    groups.tokens.label = "of token windows";
    data.signals.forEach((signal, i) => {
      const fired = signal.rules.some((rule) => rule.fired && !rule.minimum) ? " •" : "";
      const option = make("option", signal.name + fired);
      option.value = String(i);
      groups[signal.kind].append(option);
    });
    for (const group of Object.values(groups)) if (group.children.length) chosen.append(group);
    const every = make("option", data.sources.length > FEW ? `the ${FEW} largest` : "all");
    every.value = "";
    sources.append(every);
    data.sources.forEach((name, i) => {
      const option = make("option", name);
      option.value = String(i);
      sources.append(option);
    });
    chosen.value = String(data.first);
    const check = () => {
      const signal = data.signals[Number(chosen.value)];
      const held = new Set(signal.rows.map((row) => String(row.source)));
      for (const option of sources.options) option.disabled = option.value !== "" && !held.has(option.value);
      if (sources.selectedOptions[0].disabled) sources.value = "";
      draw();
    };
    chosen.addEventListener("change", check);
    sources.addEventListener("change", draw);
    for (const link of document.querySelectorAll("a[data-signal]")) {
      const place = data.signals.findIndex((signal) => signal.name === link.dataset.signal);
      if (place < 0) continue;
      link.hidden = false;
      link.addEventListener("click", (event) => {
        event.preventDefault();  // to go there by its address would take the focus from the chooser again
        chosen.value = String(place);
        check();
        find("#distributions").scrollIntoView();
        chosen.focus({ preventScroll: true });
      });
    }
    check();
    drawing(chart, draw);
  }
})();
