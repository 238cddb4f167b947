"use strict";
// One survey: moments along training, and for each of them cells (split × λ) with heads.
const survey = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const make = (tag, text, attributes = {}) => {
  const element = Object.assign(document.createElement(tag), attributes);
  if (text !== undefined) element.textContent = text;
  return element;
};
const COLOURS = ["#2f7ed8", "#e0803a", "#3aa675", "#b565c9", "#d0475b", "#8a8f2a", "#4fb3c4", "#9a6b4f"];
const number = (value) => (typeof value === "number" ? value : { Infinity: Infinity, "-Infinity": -Infinity }[value] ?? NaN);
const words = (value) => {
  const x = number(value);
  if (Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (size >= 1e6) return `${(x / 1e6).toPrecision(3)}M`;
  if (size >= 1e3) return Math.round(x).toLocaleString("en");
  if (size !== 0 && size < 1e-3) return x.toExponential(1);
  return String(Number(x.toPrecision(3)));
};
const splitName = (cell) => `${cell.lanes}×${cell.steps}`;
const colour = (position) => COLOURS[position % COLOURS.length];
const traceName = (trace) => (trace === null ? "the run's own" : String(trace));

// What is chosen

const traces = [...new Set(survey.cells.map((cell) => cell.trace))];
const heads = survey.settings.heads;
const state = { moment: survey.moments.length - 1, head: heads[0], trace: traces[0] };
const moment = () => survey.moments[state.moment];
const cellsOf = (name) => survey.cells.filter((c) => c.checkpoint === name && c.trace === state.trace);
const usable = (cell) => cell.heads[state.head] && !cell.heads[state.head].zero;
const cells = () => cellsOf(moment().name);
const shown = () => cells().filter(usable);
const record = (cell) => cell.heads[state.head];
const colourOf = (cell) => colour(survey.settings.splits.indexOf(splitName(cell)));

// Plotting

function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { ink: of("--ink"), faint: of("--faint"), line: of("--line"), panel: of("--panel") };
}

function axis(title, more = {}) {
  const { line, faint } = theme();
  return { title: { text: title, standoff: 8, font: { size: 12 } }, gridcolor: line, zerolinecolor: faint, linecolor: line, automargin: true, exponentformat: "power", ...more };
}

function draw(element, data, x, y, more = {}) {
  const { ink, panel } = theme();
  const layout = {
    margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: panel, plot_bgcolor: panel,
    font: { color: ink, size: 12, family: getComputedStyle(document.body).fontFamily },
    xaxis: x, yaxis: y, hovermode: "closest", hoverlabel: { font: { size: 13 } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, showlegend: data.length > 1, ...more,
  };
  Plotly.react(element, data, layout, { responsive: true, displayModeBar: false });
}

const errorBars = (estimates, barColour = {}) => ({
  type: "data", symmetric: false, thickness: 1.2, width: 3, ...barColour,
  array: estimates.map(([value, , high]) => Math.max(number(high) - number(value), 0)),
  arrayminus: estimates.map(([value, low]) => Math.max(number(value) - number(low), 0)),
});
const values = (estimates) => estimates.map(([value]) => number(value));
const bins = (count) => Array.from({ length: count }, (_, i) => -1 + (2 * (i + 0.5)) / count);
const shares = (counts) => {
  const total = counts.reduce((a, b) => a + b, 0) || 1;
  return counts.map((count) => count / total);
};
const lineFor = (cell, x, estimates, more = {}) => ({
  x, y: values(estimates), error_y: errorBars(estimates), name: splitName(cell), mode: "lines+markers",
  line: { color: colourOf(cell), width: 2 }, marker: { size: 5 }, ...more,
});
const histogramFor = (cell, counts, name, dash) => ({
  x: bins(counts.length), y: shares(counts), name, mode: "lines",
  line: { color: colourOf(cell), dash, shape: "hvh", width: dash === "dot" ? 1.3 : 2 },
});
// A grid of coloured squares with their figure written in them.
function grid(element, xs, ys, rows, hover, x, y, logarithmic, levels) {
  const given = levels ? levels.flat() : null;
  const flat = rows.flat();
  const points = flat.map((value, i) => [xs[i % xs.length], ys[Math.floor(i / xs.length)], value, i]).filter((p) => p[2] !== null);
  const level = (value, i) => (given ? given[i] : logarithmic ? Math.log10(Math.max(value, 1e-12)) : value);
  const colours = points.map((p) => level(p[2], p[3]));
  const room = element.clientWidth || 400;
  const size = Math.max(14, Math.min(54, (room - 70) / xs.length - 4, 200 / ys.length));
  const narrow = size < 30;
  draw(element, [{
    x: points.map((p) => String(p[0])), y: points.map((p) => String(p[1])), mode: narrow ? "markers" : "markers+text",
    text: points.map((p) => words(p[2])), textfont: { size: 10, color: "#fff" }, hovertext: points.map((p) => hover(...p)), hoverinfo: "text",
    marker: { symbol: "square", size, color: colours, colorscale: [[0, "#1d7a67"], [0.5, "#6a5a9c"], [1, "#b5403f"]], cmin: Math.min(...colours), cmax: Math.max(...colours) },
  }], axis(x, { type: "category", showgrid: false }), axis(y, { type: "category", showgrid: false, categoryorder: "array", categoryarray: ys.map(String) }), { showlegend: false });
}

// Panels: each has a title, a note, whether there is anything to show, and how to draw it.

// The true gradient's squared length, where it is known.
const truthScale = (bias) => (bias?.known ? number(bias.squared_truth[0]) : 1);
const withBias = () => shown().filter((cell) => record(cell).bias);
const panels = [
  {
    title: "What the variance is made of",
    note: "Var(ḡ) = individual + covariance within lanes + covariance between lanes; bias² beside it where a true gradient is known.",
    ready: () => shown().length > 0,
    draw(element) {
      const names = shown().map(splitName);
      const parts = [["individual", "individual"], ["covariance", "covariance in lanes"], ["between_lanes", "between lanes"]];
      const data = parts.map(([key, name], i) => {
        const estimates = shown().map((cell) => record(cell).figures[key]);
        return { type: "bar", x: names, y: values(estimates), error_y: errorBars(estimates, { color: theme().ink }), name, marker: { color: colour(i) } };
      });
      if (withBias().length) {
        const estimates = shown().map((cell) => { const b = record(cell).bias; const e = b.exact_squared_bias; return e === undefined ? b.squared_bias : [e, e, e]; });
        data.push({ type: "bar", x: names, y: values(estimates), error_y: errorBars(estimates, { color: theme().ink }), name: "bias²", marker: { color: colour(4) } });
      }
      draw(element, data, axis("lanes × steps"), axis("squared length"), { barmode: "group" });
    },
  },
  {
    title: "Correlation by lag within a lane",
    note: "Of gradients that many steps apart in one trajectory; 0 is independent.",
    ready: () => shown().some((cell) => record(cell).lags.length > 1),
    draw(element) {
      draw(element, shown().map((cell) => { const lags = record(cell).lags.slice(1); return lineFor(cell, lags.map((_, i) => i + 1), lags); }), axis("lag in steps"), axis("correlation"));
    },
  },
  {
    title: "Each step against the rest of its trajectory",
    note: "Cosine with the mean of the lane's other steps; dotted: the same after dealing samples to lanes at random.",
    ready: () => shown().length > 0,
    draw(element) {
      draw(element, shown().flatMap((cell) => {
        const lane = record(cell).directions.lane;
        return [histogramFor(cell, lane.histogram, splitName(cell), "solid"), { ...histogramFor(cell, lane.null_histogram, `${splitName(cell)} dealt out`, "dot"), showlegend: false }];
      }), axis("cosine", { range: [-1, 1] }), axis("share"));
    },
  },
  {
    title: "Batch 0 against the means of batches 0 … K",
    note: "Cosines of its per-sample gradients: median, and from the first to the last decile. Batch 0 is without the sample itself.",
    ready: () => shown().some((cell) => record(cell).directions.first_batch.length),
    draw(element) {
      draw(element, shown().map((cell, place) => { const rows = record(cell).directions.first_batch.map(([low, mid, high]) => [mid, low, high]); return lineFor(cell, rows.map((_, i) => i + 0.16 * place), rows, { mode: "markers" }); }), axis("batch"), axis("cosine"));
    },
  },
  {
    title: "Batches against each other",
    note: "Cosines of pairs of batch means. Agreement is not correctness: fresh resets can agree on a wrong direction.",
    ready: () => shown().length > 0,
    draw(element) { draw(element, shown().map((cell) => histogramFor(cell, record(cell).directions.pairs.histogram, splitName(cell), "solid")), axis("cosine", { range: [-1, 1] }), axis("share")); },
  },
  {
    title: "Batches against the true gradient",
    note: "Cosine of each batch's mean with the gradient in the form used in practice, exact in tabular tasks, else a long Monte-Carlo reference.",
    ready: () => withBias().length > 0,
    draw(element) { draw(element, withBias().map((cell) => histogramFor(cell, record(cell).bias.cosine_histogram, splitName(cell), "solid")), axis("cosine", { range: [-1, 1] }), axis("share")); },
  },
  {
    title: "Bias by source",
    note: "Exact: |what each source adds| over |true gradient|. The total is of the sum, in which sources may cancel. Pale: what lanes that start in other ways would add.",
    ready: () => withBias().some((cell) => record(cell).bias.sources),
    draw(element) {
      const rows = withBias().filter((cell) => record(cell).bias.sources);
      const names = Object.keys(record(rows[0]).bias.sources);
      const others = Object.keys(record(rows[0]).bias.starts).filter((start) => start !== survey.settings.start);
      draw(element, rows.map((cell) => {
        const { sources, starts } = record(cell).bias;
        const y = [...names.map((name) => sources[name]), ...others.map((start) => starts[start])];
        const opacity = [...names.map(() => 1), ...others.map(() => 0.45)];
        return { type: "bar", name: splitName(cell), x: [...names, ...others.map((start) => `start if ${start}`)], y, marker: { color: colourOf(cell), opacity } };
      }), axis(""), axis("relative to the gradient"), { barmode: "group" });
    },
  },
  {
    title: "Bias within an update",
    note: "At the policy that an update ends with, for the run's own split: what data of the policy before it (weighted with the ratio), clipping, and the update's own rollout add to the on-policy gradient; |bias| over |gradient|.",
    ready: () => Boolean(moment().surrogate) && state.head === "actor" && shown().length > 0 && Object.values(moment().surrogate).some(([value]) => !Number.isNaN(number(value))),
    draw(element) {
      const names = Object.keys(moment().surrogate);
      const estimates = names.map((name) => moment().surrogate[name].map((x) => Math.sqrt(Math.max(number(x), 0))));
      draw(element, [{ type: "bar", x: names, y: values(estimates), error_y: errorBars(estimates, { color: theme().ink }), marker: { color: names.map((_, i) => colour(i)) } }], axis(""), axis("relative to the gradient"));
    },
  },
  {
    title: "Exact bias of the actor over λ × T",
    note: "By dynamic programming, relative to the gradient's length; any number of lanes.",
    ready: () => Boolean(moment().exact_grid) && state.head === "actor",
    draw(element) {
      const { traces: ys, steps, bias } = moment().exact_grid;
      grid(element, steps, ys, bias, (t, l, v) => `λ ${l}, T ${t}: ${words(v)}`, "T", "λ", true);
    },
  },
  {
    title: "The choice at equal budget",
    note: "bias² and variance over |gradient|² (as they are where no truth is known), their sum, and the time of an update. The colours compare splits within a row: green is less.",
    ready: () => shown().length > 1,
    draw(element) {
      const rows = shown();
      const scale = (cell) => truthScale(record(cell).bias);
      const squared = (cell) => { const { bias } = record(cell); return bias ? Math.max(bias.exact_squared_bias ?? number(bias.squared_bias[0]), 0) / scale(cell) : null; };
      const variance = (cell) => number(record(cell).figures.variance[0]) / scale(cell);
      const measures = [["ms an update", (c) => (c.update_seconds ? 1000 * c.update_seconds : null)], ["bias² + variance", (c) => (squared(c) === null ? null : squared(c) + variance(c))], ["variance", variance], ["bias²", squared]];
      const kept = measures.filter(([, of]) => rows.every((cell) => of(cell) !== null));
      const table = kept.map(([, of]) => rows.map(of));
      const levels = table.map((row) => { const low = Math.min(...row), high = Math.max(...row); return row.map((value) => (high > low ? (value - low) / (high - low) : 0)); });
      grid(element, rows.map(splitName), kept.map(([name]) => name), table, (split, name, value) => `${split}: ${name} ${words(value)}`, "lanes × steps", "", false, levels);
    },
  },
  {
    title: "Error over N × T",
    note: "bias² + variance (variance alone where no truth is known), over |gradient|² where known. Measured splits have an update's time; for others N the variance is that of independent lanes. Equal budgets are diagonals.",
    ready: () => shown().length > 1,
    draw(element) {
      const rows = shown();
      const steps = [...new Set(rows.map((cell) => cell.steps))].sort((a, b) => a - b);
      const lanes = [...new Set(rows.map((cell) => cell.lanes))].sort((a, b) => a - b);
      const at = (n, t) => {
        const measured = rows.find((cell) => cell.lanes === n && cell.steps === t);
        const cell = measured ?? rows.find((one) => one.steps === t);
        const { figures, bias } = record(cell);
        const squared = bias ? Math.max(bias.exact_squared_bias ?? number(bias.squared_bias[0]), 0) : 0;
        const scale = truthScale(bias);
        const variance = (number(figures.variance[0]) * cell.lanes) / n;
        return { error: (squared + variance) / scale, squared: squared / scale, variance: variance / scale, measured };
      };
      const seconds = (one) => (one.measured && one.measured.update_seconds ? `<br>${words(1000 * one.measured.update_seconds)} ms an update` : "");
      grid(element, steps, lanes, lanes.map((n) => steps.map((t) => at(n, t).error)), (t, n, v) => { const one = at(n, t); return `${n}×${t}, budget ${n * t}<br>error ${words(v)} = bias² ${words(one.squared)} + variance ${words(one.variance)}${seconds(one)}`; }, "T steps", "N lanes", true);
    },
  },
  {
    title: "What minibatches add",
    note: "Variance that sub-sampling adds to the rollout's, by minibatch size.",
    ready: () => shown().length > 0,
    draw(element) {
      draw(element, shown().map((cell) => { const rows = record(cell).minibatches.filter(([, e]) => number(e[0]) > 0); return lineFor(cell, rows.map(([size]) => size), rows.map(([, e]) => e)); }), axis("samples in a minibatch", { type: "log" }), axis("added variance", { type: "log" }));
    },
  },
  {
    title: "Drift within an update",
    note: "After each gradient step, for the run's own split: how the actor's gradient of what is left of the epoch has turned, how far ratios spread, what is clipped.",
    ready: () => Boolean(moment().drift) && shown().length > 0,
    draw(element) {
      const names = [["cosine", "cosine to before"], ["ratio_spread", "spread of log-ratio"], ["clip_fraction", "clipped share"]];
      draw(element, names.map(([key, name], i) => { const rows = moment().drift[key]; return { x: rows.map((_, k) => k + 1), y: values(rows), error_y: errorBars(rows), name, mode: "lines+markers", line: { color: colour(i) }, marker: { size: 5 } }; }), axis("gradient steps"), axis(""));
    },
  },
  {
    title: "Effective samples along training",
    note: "How many independent transitions a batch is worth.",
    ready: () => survey.moments.length > 1,
    draw(element) { alongTraining(element, (one) => one.figures.effective_samples, "effective samples"); },
  },
  {
    title: "Noise scale along training",
    note: "Transitions at which the gradient's noise equals its size; updates much smaller than this are mostly noise.",
    ready: () => survey.moments.length > 1,
    draw(element) { alongTraining(element, (one) => one.figures.noise_scale, "transitions", { type: "log" }); },
  },
  {
    title: "Cosine with the true gradient along training",
    note: "Mean over batches.",
    ready: () => survey.moments.length > 1 && survey.cells.some((cell) => cell.heads[state.head]?.bias),
    draw(element) { alongTraining(element, (one) => one.bias?.cosine, "cosine"); },
  },
];

function alongTraining(element, pick, title, more = {}) {
  const data = survey.settings.splits.map((name, i) => {
    const points = survey.moments.flatMap((one) => {
      const cell = cellsOf(one.name).find((c) => splitName(c) === name && usable(c));
      const estimate = cell && pick(record(cell));
      return estimate && Number.isFinite(number(estimate[0])) ? [[one.update, estimate]] : [];
    });
    const estimates = points.map((p) => p[1]).map(([v, l, h]) => [v, l, Number.isFinite(number(h)) ? h : v]);
    return { x: points.map((p) => p[0]), y: values(estimates), error_y: errorBars(estimates), name, mode: "lines+markers", line: { color: colour(i) } };
  });
  const { faint } = theme();
  draw(element, data, axis("update"), axis(title, more), { shapes: [{ type: "line", x0: moment().update, x1: moment().update, yref: "paper", y0: 0, y1: 1, line: { color: faint, dash: "dot", width: 1 } }] });
}

// The table

const ROWS = [
  ["effective samples", (r) => r.figures.effective_samples],
  ["design effect", (r) => r.figures.design_effect],
  ["variance", (r) => r.figures.variance],
  ["variance, from single batches", (r) => r.figures.cluster_variance],
  ["noise scale", (r) => r.figures.noise_scale],
  ["signal to noise", (r) => r.figures.signal_to_noise],
  ["cosine with the rest of the lane, above chance", (r) => r.directions.lane.difference],
  ["cosine of two batches", (r) => r.directions.pairs.mean],
  ["cosine with the true gradient", (r) => r.bias?.cosine],
  ["|bias| / |gradient|", (r) => (r.bias?.sources ? [r.bias.sources.total] : r.bias?.known && r.bias.relative_bias.map((x) => Math.sqrt(Math.max(number(x), 0))))],
  ["bias² / variance", (r) => r.bias && !r.bias.known && number(r.figures.variance[0]) > 0 && r.bias.squared_bias.map((x) => number(x) / number(r.figures.variance[0]))],
  ["squared error / |gradient|²", (r) => r.bias?.known && r.bias.relative_error],
];

// The heading of a split's column, with its colour in the plots.
function column(cell) {
  const head = make("th", undefined, { scope: "col" });
  const swatch = make("span", undefined, { className: "swatch" });
  swatch.style.background = colourOf(cell);
  head.append(swatch, splitName(cell));
  if (adviceNow().some((one) => one.split === splitName(cell))) head.append(make("small", "recommended"));
  return head;
}

const adviceNow = () => (survey.advice ?? []).filter((one) => one.checkpoint === moment().name && one.trace === state.trace);

function table() {
  const rows = cells();
  const sketched = Math.max(0, ...rows.filter(usable).map((cell) => record(cell).sketch_error));
  const note = sketched ? `; gradients were sketched: inner products are within about ${words(100 * sketched)}%` : "";
  const caption = `${state.head} of ${moment().name}, ${survey.settings.batches} batches of each split${note}`;
  const element = make("table");
  element.append(make("caption", caption));
  const head = element.createTHead().insertRow();
  head.append(make("th", "lanes × steps", { scope: "col" }), ...rows.map(column));
  const body = element.createTBody();
  const addRow = (name, filled) => {
    if (!filled.some(Boolean)) return;
    const row = body.insertRow();
    row.append(make("th", name, { scope: "row" }));
    for (const estimate of filled) {
      const cell = row.insertCell();
      cell.textContent = estimate ? words(estimate[0]) : "–";
      if (estimate && estimate.length > 1) cell.append(make("small", `${words(estimate[1])} … ${words(estimate[2])}`));
    }
  };
  for (const [name, pick] of ROWS) addRow(name, rows.map((cell) => (usable(cell) ? pick(record(cell)) : undefined)));
  addRow("milliseconds an update", rows.map((cell) => cell.update_seconds && [1000 * cell.update_seconds]));
  byId("figures").replaceChildren(element, ...rows.filter((cell) => cell.refusal).map((cell) => make("p", `${splitName(cell)}: ${cell.refusal}`)));
}

// The page

const boxes = panels.map((panel) => {
  const box = make("section", undefined, { className: "panel" });
  const plot = make("div", undefined, { className: "plot", role: "img" });
  plot.setAttribute("aria-label", panel.title);
  box.append(make("h2", panel.title), make("p", panel.note), plot);
  byId("panels").append(box);
  return { box, plot };
});

function show() {
  const now = moment();
  const steps = now.steps ? ` · ${now.steps.toLocaleString("en")} steps` : "";
  const result = now.expected_return === undefined ? "" : ` · expected return ${words(now.expected_return)}`;
  byId("moment-text").textContent = `${now.name}: update ${now.update}${steps}${result}`;
  byId("moment").setAttribute("aria-valuetext", byId("moment-text").textContent);
  byId("advice").textContent = adviceNow().map((one) => one.sentence).join(" ") || "The survey is not finished: the same command goes on with it.";
  table();
  panels.forEach((panel, i) => {
    const ready = panel.ready();
    boxes[i].box.hidden = !ready;
    if (ready) panel.draw(boxes[i].plot);
  });
}

function choices(select, names, text, chosen) {
  names.forEach((name, i) => select.append(make("option", text(name), { value: String(i) })));
  select.value = String(names.indexOf(chosen));
}

const algorithm = survey.settings.algorithm.toUpperCase();
byId("title").textContent = `${survey.settings.environment} with ${algorithm}`;
document.title = `Gradient lab: ${byId("title").textContent}`;
const facts = [[survey.settings.batches, "independent batches of each split"], [survey.settings.splits.join(", "), "lanes × steps"], [survey.moments.length, survey.moments.length === 1 ? "checkpoint" : "checkpoints"], [survey.settings.start, "starts"]];
for (const [value, name] of facts) {
  const fact = make("li", ` ${name}`);
  fact.prepend(make("b", String(value)));
  byId("facts").append(fact);
}
byId("moment").max = String(survey.moments.length - 1);
byId("moment").value = String(state.moment);
byId("moment").disabled = survey.moments.length < 2;
choices(byId("head"), heads, (name) => name, state.head);
choices(byId("trace"), traces, traceName, state.trace);
byId("trace-control").hidden = traces.length < 2;
byId("command").textContent = survey.command;
for (const [name, value] of Object.entries(survey.settings)) {
  byId("settings").append(make("dt", name.replaceAll("_", " ")), make("dd", Array.isArray(value) ? value.join(", ") : String(value)));
}
byId("controls").addEventListener("submit", (event) => event.preventDefault());
function goTo(place) {
  state.moment = (place + survey.moments.length) % survey.moments.length;
  byId("moment").value = String(state.moment);
  show();
}
function choose(name, all, place) {
  state[name] = all[place % all.length];
  byId(name).value = String(place % all.length);
  show();
}
let timer = null;
function play() {
  timer = timer === null ? setInterval(() => goTo(state.moment + 1), 1200) : clearInterval(timer) ?? null;
  byId("play").textContent = timer === null ? "▶" : "❚❚";
}
byId("moment").addEventListener("input", (event) => goTo(Number(event.target.value)));
byId("head").addEventListener("change", (event) => choose("head", heads, Number(event.target.value)));
byId("trace").addEventListener("change", (event) => choose("trace", traces, Number(event.target.value)));
byId("play").addEventListener("click", play);
byId("play").hidden = survey.moments.length < 2;
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
  const keys = {
    ArrowLeft: () => goTo(state.moment - 1),
    ArrowRight: () => goTo(state.moment + 1),
    h: () => choose("head", heads, heads.indexOf(state.head) + 1),
    l: () => choose("trace", traces, traces.indexOf(state.trace) + 1),
    p: () => survey.moments.length > 1 && play(),
  };
  keys[event.key]?.();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
show();
