"use strict";
// What every page of ours does: it makes text safe to draw, copies commands, and unfolds what matters for print.
// All texts from the data block go in by textContent; into charts, whose labels know tags, with their signs escaped.
const dataguard = (() => {
  document.documentElement.classList.add("scripted");
  const find = (selector) => document.querySelector(selector);
  const make = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const count = (number) => number.toLocaleString("en-US");
  const percent = (part) => {
    if (part <= 0 || part >= 1) return `${Math.round(part * 100)}%`;
    return part < 0.0001 ? "<0.01%" : `${(Math.min(part, 0.9999) * 100).toFixed(2)}%`;
  };
  const short = (value) => {
    if (Number.isInteger(value)) return count(value);
    return Math.abs(value) >= 1000 ? count(Math.round(value * 10) / 10) : String(Number(value.toPrecision(4)));
  };
  const label = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const data = JSON.parse(find("#data").textContent);

  // ---- dark and light
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const LIGHT = { ink: "#20242a", soft: "#62676f", line: "#e3e1da", card: "#ffffff", accent: "#2c6a73", bar: "#7f9fa6", flag: "#b97a12", grave: "#ad3b33", flagSoft: "#dfbe85", graveSoft: "#dba19b" };
  const DARK = { ink: "#e4e3df", soft: "#9ba2aa", line: "#2d333a", card: "#1a1e23", accent: "#7fbac3", bar: "#5d858d", flag: "#dfb25f", grave: "#ec8d84", flagSoft: "#8c7242", graveSoft: "#96605b" };
  const colours = () => (dark.matches && !printing ? DARK : LIGHT);
  const hover = () => ({ bgcolor: colours().ink, bordercolor: colours().ink, font: { color: colours().card } });

  // ---- print: what is folded and matters is unfolded, and folded again
  const printed = window.matchMedia("print");
  const drawn = [];
  let unfolded = [];
  let printing = false;
  const prepare = () => {
    if (printing) return;
    printing = true;
    unfolded = [...document.querySelectorAll("details[data-print]:not([open])")];
    for (const each of unfolded) each.open = true;
    for (const draw of drawn) draw();
  };
  const restore = () => {
    if (!printing) return;
    printing = false;
    for (const each of unfolded) each.open = false;
    for (const draw of drawn) draw();
  };
  window.addEventListener("beforeprint", prepare);
  window.addEventListener("afterprint", restore);
  printed.addEventListener("change", () => (printed.matches ? prepare() : restore()));

  // ---- charts: drawn now, and again where the colours or the room for them change
  const drawing = (box, draw) => {
    drawn.push(draw);
    dark.addEventListener("change", draw);
    let width = 0;
    new ResizeObserver(() => {
      if (!printing && box.clientWidth !== width) {
        width = box.clientWidth;
        draw();
      }
    }).observe(box.parentElement);
    if (printed.matches) prepare();
  };

  // ---- commands: one press copies what stands there, and nothing that does not
  const copied = async (box, button) => {
    let done = true;
    try {
      await navigator.clipboard.writeText(box.textContent);
    } catch {
      getSelection().selectAllChildren(box);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Select it";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  const copying = (within) => {
    for (const box of within.querySelectorAll(".command[data-copy]")) {
      const button = make("button", "Copy", "copy");
      button.type = "button";
      button.setAttribute("aria-label", `Copy: ${box.textContent}`);
      button.addEventListener("click", () => copied(box, button));
      const frame = make("div", undefined, "typed");
      box.replaceWith(frame);
      frame.append(box, button);
    }
  };
  copying(document);

  return { find, make, count, percent, short, label, data, colours, hover, drawing, copying, isPrinting: () => printing };
})();
