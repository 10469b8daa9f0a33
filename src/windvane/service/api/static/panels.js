// The panels of the dashboard: each draws its part of a loop's data.

import {
  appendShape,
  drawAlarms,
  drawBar,
  drawChart,
  drawLine,
  fillBars,
  findRange,
} from "./charts.js";
import {
  createElement,
  formatCount,
  formatEstimate,
  formatMoment,
  formatNumber,
  formatPercent,
  formatShare,
  formatSigned,
  isKnown,
} from "./format.js";
import { fillGroups } from "./tables.js";

const OTHERS_COLOR = 8; // of all actions that are not named
const SHOWN_AT_LEAST = [0, 0.1]; // range of values that the charts of rewards and errors show
const MAIN_COUNTS = [
  ["ranked", "ranked"],
  ["activated", "activated"],
  ["learned", "rewarded"],
  ["default", "default reward"],
];
const MINOR_COUNTS = [
  ["unactivated", "never activated"],
  ["late", "late rewards"],
  ["orphan", "orphan rewards"],
  ["summed", "added rewards"],
  ["extra", "extra rewards"],
  ["held", "held rewards"],
  ["duplicate", "repeated rewards"],
  ["unlearned", "rewards not learned"],
];
const ALWAYS_SHOWN = ["late", "orphan"]; // minor counts that are shown even if 0
const REWARD_OUTCOMES = {
  learned: "learned",
  summed: "added",
  extra: "not the first, which counts",
  held: "held until activation",
  late: "too late",
  orphan: "before its rank request",
  duplicate: "repeated",
  unlearned: "not learned",
};

const byId = (id) => document.getElementById(id);
const inPanel = (id, selector) => byId(id).querySelector(selector);
const colorPlaces = new Map(); // by name of an action

/** Show the data of a loop that has made decisions. */
export function showPanels(data) {
  for (const id of ["learning", "drift", "chosen", "segments", "arrived", "forgetting"]) {
    inPanel(id, ".answer").textContent = data[id].answer;
  }
  showTiles(data);
  showLearning(data);
  showDrift(data);
  showChosen(data);
  showSegments(data);
  showArrived(data);
  showFeatures(data);
  showForgetting(data);
}

function showTiles({ learning, chosen, decisions }) {
  const describeGain = ({ value, error, lift }) => {
    if (!isKnown(value)) return ["–", "", "no estimate"];
    const isBetter = value > 2 * error;
    const isWorse = value < -2 * error;
    const className = isBetter ? "good" : isWorse ? "bad" : "";
    if (isKnown(lift.value)) {
      const ends = `${formatPercent(lift.low)} to ${formatPercent(lift.high)}`;
      return [formatPercent(lift.value), className, ends];
    }
    return [formatSigned(value), className, `± ${formatNumber(2 * error)}`];
  };
  const { mean } = learning;
  const rewards = formatCount(mean.count);
  const meanError = isKnown(mean.error) ? `± ${formatNumber(2 * mean.error)}, ` : "";
  const tiles = [
    [formatNumber(mean.value), "", `${meanError}${rewards} rewards`, "mean reward of a decision"],
    [...describeGain(learning.overBaseline), "compared with the first action"],
    [...describeGain(learning.overUniform), "compared with a random action"],
    [formatShare(chosen.explored), "", `of ${formatCount(decisions)} decisions`, "explored"],
  ];
  const elements = tiles.map(([value, className, interval, name]) => {
    const tile = createElement("div", "tile");
    tile.append(
      createElement("b", className, value),
      createElement("small", "", interval),
      createElement("span", "", name),
    );
    return tile;
  });
  byId("tiles").replaceChildren(...elements);
}

function paintAlarms(svg, scale, { alarms, clickAlarms }) {
  drawAlarms(svg, scale, "errors", alarms, clickAlarms);
  drawAlarms(svg, scale, "clicks", clickAlarms, alarms);
}

function createAlarmSeries({ alarms, clickAlarms }) {
  const createSeries = (name, bins, mark) => {
    const describe = (bin) => (bins.includes(bin) ? "here" : "");
    return bins.length ? [{ name, mark, describe }] : [];
  };
  return [
    ...createSeries("predictions worse than usual", alarms, "errors"),
    ...createSeries("share of clicks changed", clickAlarms, "clicks"),
  ];
}

function createLine(name, color, { value, error }, dash) {
  const describe = (bin) => formatEstimate(value[bin], error[bin]);
  return { name, color, dash, value, error, describe };
}

function showLearning(data) {
  const { learning, drift } = data;
  const lines = [
    createLine("a random action", "var(--uniform)", learning.rewardUniform, "2 5"),
    createLine("the first action", "var(--baseline)", learning.rewardBaseline, "7 5"),
    createLine("this loop", "var(--loop)", learning.reward),
  ];
  [learning.uniform, learning.baseline, learning.mean].forEach(({ value, error }, i) => {
    lines[i].summary = isKnown(value) ? formatEstimate(value, error) : "unknown";
  });
  const range = findRange(lines, SHOWN_AT_LEAST, lines[2], learning.ends);
  byId("waiting-note").hidden = !learning.waiting.some((share) => share > 0);
  drawChart(inPanel("learning", ".chart"), {
    bins: data,
    range,
    series: [...lines, ...createAlarmSeries(drift)],
    paint(svg, scale) {
      const { top, bottom, step: width } = scale;
      learning.waiting.forEach((share, bin) => {
        if (share === 0) return;
        const place = { x: scale.x(data.starts[bin]), y: top };
        appendShape(svg, "rect", { ...place, width, height: bottom - top, class: "veil" });
      });
      for (const line of lines) drawLine(svg, scale, line, range);
      paintAlarms(svg, scale, drift);
    },
  });
}

function showDrift(data) {
  const { error, movement, lessons } = data.drift;
  const errorLine = createLine("error", "var(--c2)", error);
  const range = findRange([errorLine], SHOWN_AT_LEAST, errorLine);
  drawChart(byId("error"), {
    bins: data,
    range,
    series: [errorLine, ...createAlarmSeries(data.drift)],
    paint(svg, scale) {
      drawLine(svg, scale, errorLine, range);
      paintAlarms(svg, scale, data.drift);
    },
  });
  const describe = (bin) =>
    `${formatNumber(movement[bin])} by ${formatCount(lessons[bin])} rewards`;
  const bars = { name: "movement", color: "var(--c5)", value: movement, describe };
  drawChart(byId("movement"), {
    bins: data,
    range: findRange([bars], SHOWN_AT_LEAST),
    series: [bars, ...createAlarmSeries(data.drift)],
    paint(svg, scale) {
      const gap = scale.step > 4 ? scale.step * 0.2 : 0;
      movement.forEach((value, bin) => {
        if (!value) return;
        const attributes = { fill: bars.color, class: "bar" };
        drawBar(svg, scale, data.starts[bin], [0, value], gap, attributes);
      });
      paintAlarms(svg, scale, data.drift);
    },
  });
}

/** An action keeps its color for as long as it is shown. */
function assignColors(names) {
  for (const name of colorPlaces.keys()) if (!names.includes(name)) colorPlaces.delete(name);
  for (const name of names) {
    if (colorPlaces.has(name)) continue;
    const taken = [...colorPlaces.values()];
    colorPlaces.set(
      name,
      names.findIndex((_, place) => !taken.includes(place)),
    );
  }
}

function showChosen(data) {
  assignColors(data.chosen.shares.map((action) => action.name).filter(isKnown));
  const placeOf = ({ name }) => (name === null ? OTHERS_COLOR : colorPlaces.get(name));
  const actions = [...data.chosen.shares].sort((one, other) => placeOf(one) - placeOf(other));
  const series = actions.map((action) => ({
    name: action.name === null ? "all others" : action.name,
    color: `var(--c${placeOf(action)})`,
    describe: (bin) => `${formatShare(action.value[bin])} of ${formatCount(data.counts[bin])}`,
    summary: `${formatShare(action.total / data.decisions)} of ${formatCount(data.decisions)}`,
  }));
  drawChart(inPanel("chosen", ".chart"), {
    bins: data,
    range: [0, 1],
    series,
    paint(svg, scale) {
      const gap = scale.step > 6 ? 1.5 : 0;
      data.starts.forEach((start, bin) => {
        let below = 0;
        actions.forEach((action, i) => {
          const share = action.value[bin];
          if (!share) return;
          const ends = [below, below + share];
          drawBar(svg, scale, start, ends, gap, { fill: series[i].color });
          below += share;
        });
      });
    },
  });
}

function showSegments({ segments: { feature, features, segments }, chosen, decisions }) {
  const options = { total: decisions, label: "action", hasGain: false };
  fillGroups(byId("actions"), chosen.actions, options);
  byId("segments").hidden = !features.length;
  byId("by-segment").hidden = !segments.length;
  fillGroups(byId("by-segment"), segments, { ...options, label: feature, hasGain: true });
  const list = byId("feature");
  if (list.matches(":focus")) return; // an open list must not change
  const names = feature && !features.includes(feature) ? [feature, ...features] : features;
  const items = names.map((name) => {
    const option = createElement("option", "", name);
    option.value = name;
    option.selected = name === feature;
    return option;
  });
  list.replaceChildren(...items);
}

function showArrived({ arrived: { funnel, waiting } }) {
  const createRow = (key, name, count, isMinor) => {
    const color = isMinor ? "var(--veil)" : undefined;
    return { name, key, size: count, text: formatCount(count), isMinor, color };
  };
  const minor = MINOR_COUNTS.filter(([key]) => funnel[key] || ALWAYS_SHOWN.includes(key));
  fillBars(inPanel("arrived", ".bars"), [
    ...MAIN_COUNTS.map(([key, name]) => createRow(key, name, funnel[key], false)),
    createRow("waiting", "still waiting", waiting, true),
    ...minor.map(([key, name]) => createRow(key, name, funnel[key], true)),
  ]);
}

function showFeatures({ features, weighed }) {
  const requests = `${formatCount(weighed)} recent requests`;
  for (const each of document.querySelectorAll(".weighed")) each.textContent = requests;
  inPanel("features", ".answer").textContent = features.length
    ? `Above all, ${features[0].name}.`
    : "None yet: the loop expects the same reward from every action.";
  const rows = features.map(({ name, amount }) => ({
    name,
    size: amount,
    text: amount.toFixed(3),
  }));
  fillBars(inPanel("features", ".bars"), rows);
}

function showForgetting({ forgetting }) {
  const { learned, effective, moving, noise } = forgetting;
  const isFixed = moving.length === 0;
  const rows = [
    {
      name: "observations",
      size: learned,
      text: formatCount(learned),
      color: "var(--veil)",
      isMinor: true,
    },
    { name: "count as", size: effective, text: formatCount(Math.round(effective)) },
  ];
  fillBars(inPanel("forgetting", ".bars"), learned && isFixed ? rows : []);
  byId("moving").hidden = isFixed;
  const bars = moving.map(({ name, share, text }) => ({ name, size: share, text }));
  fillBars(inPanel("moving", ".bars"), bars);
  const deviation = `${formatNumber(noise)} (standard deviation, ${formatCount(learned)} rewards)`;
  byId("half-life-note").textContent =
    `Rewards differ from their predictions by ${deviation}.`;
}

/** Show why one event got its choice; the belief has learned some rewards by now. */
export function showReport(report, learned) {
  byId("options-title").textContent =
    `Probability then, estimate now, after ${formatCount(learned)} rewards`;
  const time = formatMoment(report.at);
  const activation = report.activated ? "" : " · not activated";
  byId("report-title").textContent =
    `${report.event} · ${time} · round ${formatCount(report.round)}${activation}`;
  showSlots(report.slots);
  showChoice(report);
}

/** Let the reader pick a slot of a page; the first is shown. */
function showSlots(slots) {
  const chips = slots.map((own) => {
    const chip = createElement("button", "", own.slot);
    chip.addEventListener("click", () => showChoice(own));
    return chip;
  });
  byId("slots").replaceChildren(...chips);
}

/** Show what was chosen, or what one slot of a page shows. */
function showChoice(report) {
  const place = report.slot ? ` for the slot “${report.slot}”` : "";
  byId("why").textContent = `“${report.chosen}” was chosen${place}. ${report.why}`;
  const options = report.options.map(({ name, chance, estimate, chosen }) => ({
    name,
    size: chance,
    text: `${formatShare(chance)} · ${formatNumber(estimate)}`,
    color: chosen ? undefined : "var(--veil)",
    isStrong: chosen,
  }));
  fillBars(byId("options"), options);
  if (report.leftOut) appendRemark(byId("options"), `and ${formatCount(report.leftOut)} more`);
  const colorOf = (value) => (value < 0 ? "var(--baseline)" : undefined);
  const reasons = report.reasons.map(({ name, amount }) => ({
    name,
    size: amount,
    text: formatSigned(amount),
    color: colorOf(amount),
  }));
  fillBars(byId("reasons"), reasons);
  if (!reasons.length) appendRemark(byId("reasons"), "nothing yet");
  const rewards = report.rewards.map(({ value, status }) => ({
    name: REWARD_OUTCOMES[status] || status,
    size: value,
    text: formatNumber(value),
    color: colorOf(value),
  }));
  fillBars(byId("rewards"), rewards);
  if (!rewards.length) appendRemark(byId("rewards"), "no reward has arrived");
}

function appendRemark(list, text) {
  list.append(createElement("dt", "less", text));
}
