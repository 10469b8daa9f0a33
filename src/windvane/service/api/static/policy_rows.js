// One row a policy: its name, a dot with a bar for its interval, the difference, and the verdict.

import { chooseTicks } from "./charts.js";
import { createElement } from "./format.js";

const MARGIN = 0.06; // of the range, on either side
const WIDEST_BAR = 2; // half of a bar, in multiples of the distance between the farthest dots

/** The range of rewards that the rows show; bars that are far longer than others are cut. */
function findRowRange(reference, others) {
  const dots = [reference.value, ...others.map((line) => reference.value + line.gain)];
  const [least, most] = [Math.min(...dots), Math.max(...dots)];
  const widths = others.map((line) => (line.gainHigh - line.gainLow) / 2).sort((a, b) => a - b);
  const typical = widths.length ? widths[Math.floor(widths.length / 2)] : 0;
  const longest = Math.max(WIDEST_BAR * (most - least), typical, 1e-6);
  const ends = others.flatMap((line) => [
    Math.max(reference.value + line.gainLow, least - longest),
    Math.min(reference.value + line.gainHigh, most + longest),
  ]);
  const low = Math.min(least, ...ends);
  const high = Math.max(most, ...ends);
  const margin = (high - low) * MARGIN || 0.5;
  return [low - margin, high + margin];
}

/** Fill a list with a button for each policy; `onSelect(line)` is called by a click. */
export function fillPolicyRows(list, policies, selectedId, onSelect) {
  const focusedId = list.contains(document.activeElement)
    ? document.activeElement.dataset.policy
    : undefined;
  const [reference, ...others] = policies;
  const [low, high] = findRowRange(
    reference,
    others.filter((line) => line.verdict !== "untrusted"),
  );
  const place = (value) => (100 * (Math.min(Math.max(value, low), high) - low)) / (high - low);
  const rows = policies.map((line) => {
    const row = createRow(line, reference, place);
    row.setAttribute("aria-pressed", String(line.id === selectedId));
    row.addEventListener("click", () => onSelect(line));
    return row;
  });
  list.replaceChildren(...rows, createAxis(low, high, place));
  if (focusedId !== undefined) rows.find((row) => row.dataset.policy === focusedId)?.focus();
}

function createRow(line, reference, place) {
  const isReference = line === reference;
  const row = createElement("button", `policy ${line.verdict.replace(" ", "-")}`);
  row.type = "button";
  row.dataset.policy = line.id;
  row.setAttribute("aria-label", isReference ? line.valueSentence : line.sentence);
  const name = createElement("span", "name", line.name);
  name.title = line.text;
  const [difference, ends] = isReference ? describeReference(line) : describeGain(line);
  const track = createTrack(line, reference, place);
  const isTrusted = line.verdict !== "untrusted";
  const amount = createElement("span", "amount", isTrusted ? difference : "–");
  if (isTrusted) amount.append(createElement("small", "", ends));
  row.append(name, track, amount, createElement("span", "verdict", line.verdictWords));
  return row;
}

function describeReference({ value, low, high }) {
  return [value.toFixed(3), [low, high].map((end) => end.toFixed(3)).join(" to ")];
}

function describeGain({ gain, gainLow, gainHigh }) {
  const half = (gainHigh - gainLow) / 2;
  const decimals = half > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(half)), 3), 6) : 3;
  const format = (number) => (number < 0 ? "−" : "+") + Math.abs(number).toFixed(decimals);
  return [format(gain), `${format(gainLow)} to ${format(gainHigh)}`];
}

function createTrack(line, reference, place) {
  const track = createElement("span", "track");
  const axis = createElement("i", "reference");
  axis.style.left = `${place(reference.value)}%`;
  track.append(axis);
  if (line.verdict === "untrusted") return track;
  if (line !== reference) {
    const [from, to] = [line.gainLow, line.gainHigh].map((gain) => place(reference.value + gain));
    const bar = createElement("i", "interval");
    bar.style.left = `${from}%`;
    bar.style.width = `${to - from}%`;
    track.append(bar);
  }
  const dot = createElement("i", "dot");
  dot.style.left = `${place(reference.value + (line === reference ? 0 : line.gain))}%`;
  track.append(dot);
  return track;
}

function createAxis(low, high, place) {
  const axis = createElement("div", "policy axis");
  const track = createElement("span", "track");
  for (const value of chooseTicks(low, high, 4)) {
    const number = String(Number(value.toPrecision(6))).replace("-", "−");
    const tick = createElement("span", "tick", number);
    tick.style.left = `${place(value)}%`;
    track.append(tick);
  }
  axis.append(createElement("span", "name", ""), track);
  return axis;
}
