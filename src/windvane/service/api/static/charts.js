// Charts as SVG: lines with error bands, bars over time, and lists of horizontal bars.
//
// Time is divided into bins of equal width. A series has a name, a color, `describe(bin)` for the
// legend under the pointer and `summary` for the legend otherwise; a line also has one value a bin,
// null if unknown, and perhaps one standard error a bin.

import { createElement, formatMoment, formatTime, isKnown } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const AXIS_WIDTH = 44; // pixels, as all sizes below
const AXIS_HEIGHT = 24;
const NARROW_CHART = 520;

export function appendShape(parent, kind, attributes, text) {
  const shape = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
  if (text !== undefined) shape.textContent = text;
  parent.append(shape);
  return shape;
}

/**
 * Draw a chart and its legend into an element.
 *
 * `bins` has `starts` and `width` in microseconds, `range` is [lowest, highest] value, and
 * `paint(svg, scale)` draws the data between the axes and the cursor. `label` says what the chart
 * shows; without one, the answer of the section does.
 */
export function drawChart(host, { bins, range, series, paint, label }) {
  const width = Math.max(host.clientWidth, 240);
  const height = width < NARROW_CHART ? 190 : 220;
  const scale = createScale(bins, range, width, height);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  const answer = host.closest("section").querySelector(".answer");
  svg.setAttribute("aria-label", label ?? answer.textContent);
  drawValueAxis(svg, scale, host.dataset.unit === "share");
  drawTimeAxis(svg, scale, bins, width, height);
  paint(svg, scale);
  const legend = createLegend(series);
  const showBin = createCursor(svg, scale, bins, (bin) => {
    legend.show(bin, bin === null ? "" : formatMoment(bins.starts[bin]));
    host.shownBin = bin;
  });
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const x = (event.clientX - frame.left) * (width / frame.width);
    const bin = Math.floor(((x - scale.left) / (scale.right - scale.left)) * bins.starts.length);
    showBin(Math.min(Math.max(bin, 0), bins.starts.length - 1));
  });
  svg.addEventListener("pointerleave", () => showBin(null));
  const bin = host.shownBin; // of the chart that this one replaces
  const keepsBin = isKnown(bin) && bin < bins.starts.length && host.matches(":hover");
  showBin(keepsBin ? bin : null);
  host.replaceChildren(svg, legend.element);
}

function createScale(bins, range, width, height) {
  const [left, right, top, bottom] = [AXIS_WIDTH, width - 6, 10, height - AXIS_HEIGHT];
  const hasHeight = range[1] > range[0];
  const low = hasHeight ? range[0] : range[0] - 0.5;
  const high = hasHeight ? range[1] : range[1] + 0.5;
  const span = bins.starts.length * bins.width;
  const x = (time) => left + ((time - bins.starts[0]) / span) * (right - left);
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
  const middle = (bin) => x(bins.starts[bin] + bins.width / 2);
  const step = (right - left) / bins.starts.length; // width of a bin
  return { left, right, top, bottom, low, high, span, x, y, middle, step };
}

function drawValueAxis(svg, { left, right, low, high, y }, isShare) {
  for (const value of chooseTicks(low, high, 4)) {
    const isZero = Math.abs(value) < 1e-12 && low < 0;
    const line = { x1: left, x2: right, y1: y(value), y2: y(value) };
    appendShape(svg, "line", { ...line, class: isZero ? "zero" : "grid" });
    const number = String(Number(value.toPrecision(6))).replace("-", "−");
    const label = isShare ? `${Math.round(100 * value)} %` : number;
    appendShape(svg, "text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, label);
  }
}

function drawTimeAxis(svg, { right, span, x }, bins, width, height) {
  const count = bins.starts.length;
  const labels = Math.min(Math.max(2, Math.floor(width / 170)), count);
  const binsPerLabel = Math.max(1, Math.ceil(count / labels));
  for (let bin = 0; bin < count; bin += binsPerLabel) {
    const place = x(bins.starts[bin]);
    if (bin > 0 && place >= right - 30) continue;
    const attributes = { x: place, y: height - 6, "text-anchor": bin === 0 ? "start" : "middle" };
    appendShape(svg, "text", attributes, formatTime(bins.starts[bin], span));
  }
}

/** Round values between two numbers: multiples of 1, 2 or 5 times a power of 10. */
export function chooseTicks(low, high, wanted) {
  const least = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least * 0.999);
  const ticks = [];
  const tolerance = 1e-9;
  for (let k = Math.ceil(low / step - tolerance); k * step <= high + step * tolerance; k++) {
    ticks.push(k * step);
  }
  return ticks;
}

function createCursor(svg, { top, bottom, middle }, bins, onChange) {
  const attributes = { class: "cursor", y1: top, y2: bottom, visibility: "hidden" };
  const cursor = appendShape(svg, "line", attributes);
  return (bin) => {
    cursor.setAttribute("visibility", bin === null ? "hidden" : "visible");
    if (bin !== null) {
      cursor.setAttribute("x1", middle(bin));
      cursor.setAttribute("x2", middle(bin));
    }
    onChange(bin);
  };
}

function createLegend(series) {
  const element = createElement("ul", "legend");
  const values = series.map(({ name, color, mark }) => {
    const item = createElement("li");
    const swatch = createElement("i", mark);
    swatch.style.background = color;
    const label = createElement("span", "name", name);
    label.title = name;
    const value = createElement("span", "value");
    item.append(swatch, label, value);
    element.append(item);
    return value;
  });
  const time = createElement("span", "value");
  const item = createElement("li");
  item.append(time);
  element.append(item);
  const show = (bin, timeText) => {
    series.forEach(({ describe, summary }, i) => {
      values[i].textContent = bin === null ? summary || "" : describe(bin);
    });
    time.textContent = timeText;
  };
  return { element, show };
}

/** The range of all values, of the band of one line within limits, and of what is always shown. */
export function findRange(lines, alwaysShown, banded, limits = [0, Infinity]) {
  let [low, high] = alwaysShown;
  for (const line of lines) {
    line.value.forEach((value, bin) => {
      if (!isKnown(value)) return;
      const halfWidth = line === banded ? bandHalfWidth(line, bin) : 0;
      low = Math.min(low, value, Math.max(value - halfWidth, limits[0]));
      high = Math.max(high, value, Math.min(value + halfWidth, limits[1]));
    });
  }
  return [low, high];
}

function bandHalfWidth(line, bin) {
  return isKnown(line.error[bin]) ? 2 * line.error[bin] : 0;
}

/** Draw a line with its error band, cut to the range; a bin without neighbours becomes a dot. */
export function drawLine(svg, scale, line, range) {
  for (const run of findRuns(line.value)) {
    if (line.error) drawBand(svg, scale, line, run, range);
    const points = run.map((bin) => `${scale.middle(bin)},${scale.y(line.value[bin])}`);
    if (run.length > 1) {
      const stroke = { stroke: line.color, "stroke-dasharray": line.dash || "none" };
      appendShape(svg, "polyline", { points: points.join(" "), class: "trace", ...stroke });
    } else {
      const center = { cx: scale.middle(run[0]), cy: scale.y(line.value[run[0]]) };
      appendShape(svg, "circle", { ...center, r: 3, fill: line.color });
    }
  }
}

function drawBand(svg, { middle, y }, line, run, [low, high]) {
  const place = (value) => y(Math.min(Math.max(value, low), high));
  const upper = (bin) => place(line.value[bin] + bandHalfWidth(line, bin));
  const lower = (bin) => place(line.value[bin] - bandHalfWidth(line, bin));
  if (run.length > 1) {
    const above = run.map((bin) => `${middle(bin)},${upper(bin)}`);
    const below = run.map((bin) => `${middle(bin)},${lower(bin)}`).reverse();
    const points = [...above, ...below].join(" ");
    appendShape(svg, "polygon", { points, class: "band", fill: line.color });
  } else {
    const [bin] = run;
    const ends = { x1: middle(bin), x2: middle(bin), y1: upper(bin), y2: lower(bin) };
    const stroke = { stroke: line.color, "stroke-width": 6, opacity: 0.25 };
    appendShape(svg, "line", { ...ends, ...stroke });
  }
}

/** The bins whose value is known, as runs of neighbours. */
function findRuns(values) {
  const runs = [];
  values.forEach((value, bin) => {
    if (!isKnown(value)) return;
    if (bin > 0 && isKnown(values[bin - 1])) runs.at(-1).push(bin);
    else runs.push([bin]);
  });
  return runs;
}

/** Draw a bar from one value to another in a bin; `gap` is the space between two bars. */
export function drawBar(svg, scale, start, [from, to], gap, attributes) {
  const top = scale.y(to);
  const size = { width: scale.step - gap, height: Math.max(scale.y(from) - top, 0) };
  appendShape(svg, "rect", { x: scale.x(start) + gap / 2, y: top, ...size, ...attributes });
}

const ALARM_HEADS = {
  // Paths from the top of an alarm's line
  errors: "m-5 -4h10l-5 8z", // a triangle
  clicks: "m0 -5l5 5l-5 5l-5 -5z", // a diamond
};
const ALARM_SHIFT = { errors: -5, clicks: 5 }; // in a bin with alarms of both kinds

/** Draw the marks of alarms over a chart; the kind is errors or clicks. */
export function drawAlarms(svg, { top, bottom, middle }, kind, alarmBins, otherBins) {
  for (const bin of alarmBins) {
    const x = middle(bin) + (otherBins.includes(bin) ? ALARM_SHIFT[kind] : 0);
    appendShape(svg, "line", { x1: x, x2: x, y1: top, y2: bottom, class: `alarm ${kind}` });
    const d = `M${x} ${top}${ALARM_HEADS[kind]}`;
    appendShape(svg, "path", { d, class: `alarm-head ${kind}` });
  }
}

/**
 * Fill a <dl> with one horizontal bar a row, the largest at full width.
 *
 * A row has `name`, `size` and `text`; `color`, `isMinor` (grey text), `isStrong` and `key` (for
 * scripts that read the page) may be missing.
 */
export function fillBars(list, rows) {
  const largest = Math.max(...rows.map((row) => Math.abs(row.size)), 1e-12);
  list.replaceChildren(...rows.flatMap((row) => createBarRow(row, largest)));
}

function createBarRow({ name, size, text, color, isMinor, isStrong, key }, largest) {
  const label = createElement("dt", isMinor ? "less name" : "name");
  label.append(createElement(isStrong ? "strong" : "span", "", name));
  const rail = createElement("dd", "rail");
  const fill = createElement("div", "fill");
  fill.style.width = `${(100 * Math.abs(size)) / largest}%`;
  if (color) fill.style.background = color;
  rail.append(fill);
  const amount = createElement("dd", isMinor ? "amount less" : "amount", text);
  if (key) amount.dataset.count = key;
  return [label, rail, amount];
}
