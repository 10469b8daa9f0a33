// The panel of evaluations: what other policies would have earned, starting and applying them.

import { drawChart, drawLine, findRange } from "./charts.js";
import {
  createElement,
  formatCount,
  formatEstimate,
  formatMoment,
  formatPercent,
  formatShare,
  formatTime,
} from "./format.js";
import { fillPolicyRows } from "./policy_rows.js";
import { fetchWithKey, loopName, sendChange, storeKey } from "./requests.js";
import { changeView, readView } from "./view.js";

const RUNNING_MILLISECONDS = 1000; // between two looks at an evaluation that runs
const IDLE_MILLISECONDS = 10_000;
const DAY_MILLISECONDS = 86_400_000;
const ALL_OF_THE_LOG = "1970-01-01";
const LONG_SPAN = 2 * 86_400e6; // microseconds, from which times are shown as days

const byId = (id) => document.getElementById(id);
let panel = null;
let panelTag = null; // ETag of the panel that is shown
let wantedId = readView("evaluation") || null; // that the user has chosen; null: the newest
let selectedId = readView("policy") || null; // policy whose details are shown; null: the best one
let getClockOffset = () => 0; // seconds
let timer = 0;
let drawnWidth = 0; // of the chart, in pixels

/** Show the panel, and follow what happens. */
export function showEvaluationForever(clockOffset) {
  getClockOffset = clockOffset;
  followEvaluation();
}

async function followEvaluation() {
  clearTimeout(timer);
  try {
    if (!document.hidden) await refreshEvaluation();
  } finally {
    clearTimeout(timer);
    const isRunning = panel?.shown?.isRunning;
    timer = setTimeout(followEvaluation, isRunning ? RUNNING_MILLISECONDS : IDLE_MILLISECONDS);
  }
}

async function refreshEvaluation() {
  const query = wantedId === null ? "" : `?id=${encodeURIComponent(wantedId)}`;
  const url = `/board/${encodeURIComponent(loopName)}/evaluation.json${query}`;
  const response = await fetchWithKey(url).catch(() => null);
  if (response?.status === 404) selectEvaluation(null); // it was deleted
  if (!response?.ok) return;
  const tag = response.headers.get("etag");
  if (tag === panelTag) return;
  panel = await response.json();
  panelTag = tag;
  drawEvaluation();
}

function selectEvaluation(id) {
  wantedId = id;
  selectPolicy(null);
}

function selectPolicy(id) {
  selectedId = id;
  changeView({ evaluation: wantedId, policy: selectedId });
}

function drawEvaluation() {
  const { shown } = panel;
  const isRunning = Boolean(shown?.isRunning);
  byId("evaluate").querySelector(".answer").textContent = panel.answer;
  byId("evaluation-progress").hidden = !isRunning;
  byId("cancel-evaluation").hidden = !panel.canChange;
  if (isRunning) showProgress(shown.progress ?? 0);
  byId("evaluation-result").hidden = !shown?.policies.length;
  byId("evaluate-form").hidden = !panel.canChange || isRunning;
  byId("admin-key").hidden = panel.canChange;
  showList(panel);
  showLastChange(panel.lastChange);
  if (!shown?.policies.length) return;
  const id = encodeURIComponent(shown.id);
  byId("report-link").href = `/board/${encodeURIComponent(loopName)}/evaluation.html?id=${id}`;
  showPolicies(shown);
}

function showProgress(share) {
  byId("evaluation-progress").querySelector("progress").value = share;
  byId("evaluation-share").textContent = formatShare(share);
}

function showList({ evaluations, shown, settings }) {
  const describe = ({ name, status, at, isAuto }) => {
    const words = [formatTime(at, LONG_SPAN), name, isAuto ? "automatic" : "", status];
    return words.filter(Boolean).join(" · ");
  };
  const options = evaluations.map((evaluation) => {
    const option = createElement("option", "", describe(evaluation));
    option.value = evaluation.id;
    option.selected = evaluation.id === shown?.id;
    return option;
  });
  byId("evaluations").hidden = !evaluations.length;
  byId("evaluations").replaceChildren(...options);
  const facts = [];
  if (shown?.since && shown.until) {
    const span = shown.until - shown.since;
    const [from, to] = [shown.since, shown.until].map((time) => formatTime(time, span));
    facts.push(`${formatCount(shown.decisions)} decisions, ${from} to ${to}, local time.`);
  }
  facts.push(`The loop has ${settings}.`);
  byId("evaluation-facts").textContent = facts.join(" ");
}

const formatChange = ({ setting, before, after }) => `${setting} ${before} → ${after}`;

function showLastChange(change) {
  byId("last-change").hidden = !change;
  if (!change) return;
  const author = change.by === "auto-optimise" ? " by auto-optimisation" : "";
  const time = formatMoment(change.at);
  const changes = change.changes.map(formatChange).join(", ");
  byId("last-change").textContent =
    `Settings changed${author} on ${time}: ${changes}. ${change.note}`;
}

function findSelected({ policies, best }) {
  const find = (id) => policies.find((line) => line.id === id);
  return find(selectedId) ?? find(best) ?? policies[0];
}

function showPolicies(shown) {
  const line = findSelected(shown);
  fillPolicyRows(byId("policies"), shown.policies, line.id, ({ id }) => {
    selectPolicy(id);
    showPolicies(shown);
  });
  showPolicy(line, shown);
}

function showPolicy(line, shown) {
  const isReference = line === shown.policies[0];
  byId("policy-name").textContent = line.name;
  byId("policy-sentence").textContent = line.sentence;
  byId("policy-value").hidden = line.verdict === "untrusted";
  byId("policy-value").textContent = describeValue(line, shown.policies[0]);
  byId("policy-sentence").hidden = panel.answer.includes(line.sentence); // it is said already
  const problems = line.problems.slice(1).map((text) => createElement("li", "", text));
  byId("policy-problems").replaceChildren(...problems);
  byId("policy-apply").hidden = isReference;
  const isBetter = line.canApply && line.verdict === "better";
  byId("apply").hidden = !(panel.canChange && isBetter && line.changes.length);
  byId("policy-changes").textContent = describeChanges(line);
  byId("policy-notes").textContent = [...line.notes, ...shown.notes].join(" ");
  drawPolicyChart(line, shown);
}

function describeValue(line, reference) {
  const rows = `Effective rows: ${formatCount(line.effectiveRows)}.`;
  if (line === reference || !reference.value) return `${line.valueSentence} ${rows}`;
  const [lift, low, high] = [line.gain, line.gainLow, line.gainHigh].map((gain) =>
    formatPercent(gain / Math.abs(reference.value)),
  );
  const unit = `of the ${reference.value.toFixed(3)} that this loop is estimated to earn`;
  return `${line.valueSentence} The difference is ${lift} (${low} to ${high}) ${unit}. ${rows}`;
}

function describeChanges({ canApply, changes, verdict }) {
  if (!canApply) return "A loop cannot run this policy.";
  if (!changes.length) return "The loop has these settings.";
  if (verdict !== "better") return "Keep what you have: this is not better with confidence.";
  return changes.map(formatChange).join(", ");
}

function drawPolicyChart(line, shown) {
  const [reference] = shown.policies;
  const createLine = ({ name }, { value, error }, color) => {
    const describe = (bin) => formatEstimate(value[bin], error[bin]);
    return { name, color, value, error, describe };
  };
  const lines = [createLine(reference, reference.series, "var(--loop)")];
  const isDrawn = line !== reference && line.verdict !== "untrusted";
  if (isDrawn) lines.push(createLine(line, line.series, "var(--baseline)"));
  const hasDifference = isDrawn && line.difference !== null;
  byId("difference").hidden = !hasDifference || !shown.starts.length;
  if (!shown.starts.length) return byId("policy-chart").replaceChildren();
  drawnWidth = byId("policy-chart").clientWidth;
  drawLines("policy-chart", shown, lines, findRange(lines, [0, 0], lines[0]), line.sentence);
  if (!hasDifference) return;
  const difference = createLine(line, line.difference, "var(--baseline)");
  const range = findRange([difference], [0, 0], difference, [-Infinity, Infinity]);
  drawLines("difference-chart", shown, [difference], range, line.sentence);
}

function drawLines(id, bins, lines, range, label) {
  const paint = (svg, scale) => lines.forEach((line) => drawLine(svg, scale, line, range));
  drawChart(byId(id), { bins, range, series: lines, label, paint });
}

/** Send a change to the service and show what came of it, or why it was refused. */
async function sendAndShow(send) {
  byId("evaluate-error").textContent = "";
  try {
    await send();
  } catch (error) {
    byId("evaluate-error").textContent = error.message;
  }
  panelTag = null;
  await followEvaluation();
}

async function startEvaluation() {
  const now = Date.now() - 1000 * getClockOffset();
  const days = Number(byId("evaluate-period").value);
  const texts = byId("evaluate-policies").value.split("\n");
  const policies = [...new Set(texts.map((text) => text.trim()).filter(Boolean))];
  const toTime = (milliseconds) => new Date(milliseconds).toISOString();
  await sendChange("POST", "v1.0/evaluations", {
    name: days ? `last ${days === 1 ? "day" : `${days} days`}` : "all of the log",
    startTime: days ? toTime(now - days * DAY_MILLISECONDS) : ALL_OF_THE_LOG,
    endTime: toTime(now + DAY_MILLISECONDS),
    enableOfflineExperimentation: byId("evaluate-grid").checked,
    policies: policies.map((text) => ({ name: text.slice(0, 256), arguments: text })),
  });
  selectEvaluation(null);
}

function askToApply() {
  const line = findSelected(panel.shown);
  byId("apply-question").textContent = `Apply ${line.name}?`;
  const items = line.changes.map((each) => createElement("li", "", formatChange(each)));
  byId("apply-changes").replaceChildren(...items);
  byId("apply-doubt").textContent = line.verdict === "better" ? "" : line.sentence;
  byId("apply-dialog").showModal();
}

async function applySelected() {
  byId("apply-dialog").close();
  const { shown } = panel;
  const body = { evaluationId: shown.id, policyName: findSelected(shown).id };
  await sendAndShow(() => sendChange("POST", "v1.0/configurations/applyFromEvaluation", body));
}

new ResizeObserver(() => {
  if (panel && byId("policy-chart").clientWidth !== drawnWidth) drawEvaluation();
}).observe(byId("policy-chart"));
byId("evaluate-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sendAndShow(startEvaluation);
});
byId("cancel-evaluation").addEventListener("click", () => {
  const path = `evaluations/${encodeURIComponent(panel.shown.id)}`;
  sendAndShow(() => sendChange("DELETE", path));
});
byId("evaluations").addEventListener("change", () => {
  selectEvaluation(byId("evaluations").value);
  sendAndShow(async () => {});
});
byId("apply").addEventListener("click", askToApply);
byId("apply-confirm").addEventListener("click", applySelected);
byId("apply-cancel").addEventListener("click", () => byId("apply-dialog").close());
byId("admin-key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  storeKey(byId("admin-key-text").value.trim());
  sendAndShow(async () => {});
});
