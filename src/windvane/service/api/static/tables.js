// Tables with intervals, and their download as CSV.

import { createElement, formatCount, formatInterval, isKnown } from "./format.js";

const FORMULA = /^[=+\-@\t\r]/; // what a spreadsheet would calculate

/**
 * Fill a <table> with groups of decisions: actions or segments.
 *
 * A group has `name`, `count`, `rewarded`, and the estimates `reward`, `trend` and `gain`. The name
 * of the first column is `label`; `hasGain` says whether the gain has a column.
 */
export function fillGroups(table, groups, { label, total, hasGain }) {
  const columns = [label, "decisions", "mean reward"];
  if (hasGain) columns.push("more than the first action");
  columns.push("trend");
  const ends = groups.flatMap(({ reward }) => [reward.low, reward.high]).filter(isKnown);
  const range = [Math.min(...ends), Math.max(...ends)];
  const rows = groups.map((group) => {
    const name = createElement("th", "name", group.name ?? "all others");
    name.scope = "row";
    name.title = group.name ?? "";
    const share = `${formatCount(group.count)} (${Math.round((100 * group.count) / total)} %)`;
    const cells = [createElement("td", "", share), createRewardCell(group, range)];
    if (hasGain) cells.push(createChangeCell(group.gain, ["more", "less", "not clear"]));
    cells.push(createChangeCell(group.trend, ["rises", "falls", "no clear change"]));
    cells.forEach((cell, k) => {
      cell.dataset.label = columns[k + 1];
    });
    const row = createElement("tr");
    row.append(name, ...cells);
    return row;
  });
  const head = createElement("tr");
  head.append(
    ...columns.map((text) => {
      const cell = createElement("th", "", text);
      cell.scope = "col";
      return cell;
    }),
  );
  const [top, body] = [createElement("thead"), createElement("tbody")];
  top.append(head);
  body.append(...rows);
  table.replaceChildren(top, body);
}

function createRewardCell({ reward, rewarded }, [low, high]) {
  const cell = createElement("td", "estimate");
  const text = isKnown(reward.value) ? formatInterval(reward) : "–";
  cell.append(createElement("span", "", text));
  cell.append(createElement("small", "", `of ${formatCount(rewarded)} with a reward`));
  if (!isKnown(reward.value) || high <= low) return cell;
  const place = (value) => (100 * (value - low)) / (high - low);
  const track = createElement("span", "track");
  const interval = createElement("i", "interval");
  interval.style.left = `${place(reward.low)}%`;
  interval.style.width = `${place(reward.high) - place(reward.low)}%`;
  const dot = createElement("i", "dot");
  dot.style.left = `${place(reward.value)}%`;
  track.append(interval, dot);
  cell.append(track);
  return cell;
}

/** A difference with its interval; the words are those for above 0, below 0 and neither. */
function createChangeCell(change, [above, below, neither]) {
  if (!isKnown(change.value)) return createElement("td", "less", "too few rewards");
  const verdict = change.low > 0 ? "good" : change.high < 0 ? "bad" : "less";
  const words = { good: above, bad: below, less: neither };
  const cell = createElement("td", "estimate");
  cell.append(
    createElement("span", verdict, words[verdict]),
    createElement("small", "", formatInterval(change, true)),
  );
  return cell;
}

/** The columns and rows of groups as a file has them. */
export function listGroups(groups, label) {
  const spread = (name, pick) => [
    [name, (group) => pick(group).value],
    [`${name} low`, (group) => pick(group).low],
    [`${name} high`, (group) => pick(group).high],
  ];
  const columns = [
    [label, ({ name }) => name ?? "all others"],
    ["decisions", ({ count }) => count],
    ["rewarded", ({ rewarded }) => rewarded],
    ...spread("mean reward", ({ reward }) => reward),
    ...spread("gain over the first action", ({ gain }) => gain),
    ...spread("trend", ({ trend }) => trend),
  ];
  const used = columns.filter(([, read]) => groups.some((group) => isKnown(read(group))));
  const rows = groups.map((group) => used.map(([, read]) => read(group)));
  return [used.map(([name]) => name), ...rows];
}

/** Text of CSV: unknown numbers are empty, and no name is a formula. */
export function formatCsv(rows) {
  const escape = (value) => {
    if (!isKnown(value)) return "";
    if (typeof value === "number") return String(value);
    const text = FORMULA.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(escape).join(",")}\r\n`).join("");
}

/** Let the browser save rows as a file. */
export function downloadCsv(fileName, rows) {
  const link = createElement("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff", formatCsv(rows)], { type: "text/csv" }));
  link.download = fileName;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
