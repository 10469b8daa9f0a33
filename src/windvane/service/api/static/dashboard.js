// The dashboard of one loop: fetches its data every two seconds and shows it.

import { showEvaluationForever } from "./evaluate.js";
import { createElement, describeZone, formatMoment } from "./format.js";
import { showPanels, showReport } from "./panels.js";
import { fetchWithKey, loopName, storeKey } from "./requests.js";
import { downloadCsv, listGroups } from "./tables.js";
import { changeView, createLink, readView } from "./view.js";

const REFRESH_MILLISECONDS = 2000;
const RESIZE_MILLISECONDS = 150; // of rest, after which the charts are drawn again
const SINCE_STEP = 5e6; // microseconds; a start of the range that moves rarely keeps the ETag

const byId = (id) => document.getElementById(id);
let shownData = null;
let shownTag = null; // ETag of the data that is shown

/** Seconds of the wall clock minus service time, if the wall clock is not believed. */
function clockOffset() {
  return shownData?.clock?.offset ?? 0;
}

function dataUrl() {
  const query = new URLSearchParams();
  const span = Number(readView("range")) * 1e6; // microseconds
  const now = Date.now() * 1000 - clockOffset() * 1e6;
  if (readView("since")) query.set("since", readView("since"));
  else if (span) query.set("since", Math.floor((now - span) / SINCE_STEP) * SINCE_STEP);
  if (readView("until")) query.set("until", readView("until"));
  const feature = readView("by") || shownData?.segments.features[0];
  if (feature) query.set("by", feature);
  return `/board/${encodeURIComponent(loopName)}.json?${query}`;
}

/** Show the range of the address; one with two ends is an entry of its own. */
function showRange() {
  const [since, until] = [readView("since"), readView("until")];
  byId("range").querySelector("[value=fixed]")?.remove();
  if (since && until) {
    const [from, to] = [since, until].map((time) => formatMoment(Number(time)));
    const option = createElement("option", "", `${from} to ${to}`);
    option.value = "fixed";
    byId("range").append(option);
    byId("range").value = "fixed";
    return;
  }
  byId("range").value = readView("range");
}

/** The link opens this view with the same decisions, however late it is followed. */
function showLink() {
  const { since, until, decisions } = shownData;
  const ends = decisions ? { since: String(since), until: String(until + 1), range: "" } : {};
  const feature = shownData.segments.feature ?? "";
  byId("view-link").href = createLink({ ...ends, by: feature });
}

function showStatus(text, className) {
  byId("status").textContent = text;
  byId("status").className = className;
}

async function refresh() {
  const response = await fetchWithKey(dataUrl()).catch(() => null);
  if (!response) return showStatus("not reachable", "off");
  byId("key-needed").hidden = response.status !== 401;
  if (response.status === 401) return showStatus("key needed", "");
  if (!response.ok) return showStatus((await response.json()).error.message, "off");
  const tag = response.headers.get("etag");
  if (tag !== shownTag) {
    shownData = await response.json();
    try {
      showData();
    } catch (error) {
      showStatus("failed", "off");
      throw error;
    }
    shownTag = tag;
    if (!shownData.segments.feature && shownData.segments.features.length) return refresh();
  }
  showStatus(shownData.behind ? "reading the log" : "live", "on");
}

async function refreshForever() {
  try {
    if (!document.hidden) await refresh();
  } finally {
    setTimeout(refreshForever, REFRESH_MILLISECONDS);
  }
}

function showData() {
  byId("clock").hidden = !shownData.clock;
  byId("clock").textContent = shownData.clock?.answer ?? "";
  const isEmpty = shownData.arrived.funnel.ranked === 0;
  byId("empty").hidden = !isEmpty;
  for (const panel of document.querySelectorAll(".panel")) panel.hidden = isEmpty;
  if (isEmpty) return;
  showPanels(shownData);
  showLink();
  showRecentEvents(shownData.recent);
}

function showRecentEvents(events) {
  const list = byId("recent");
  if (list.matches(":hover, :focus-within")) return; // a click must not miss its event
  const chips = events.map((id) => {
    const chip = createElement("button", "", id);
    chip.type = "button";
    chip.addEventListener("click", () => {
      byId("event").value = id;
      lookUpEvent(id);
    });
    return chip;
  });
  list.replaceChildren("recent events:", ...chips);
}

async function lookUpEvent(id) {
  const url = `/board/${encodeURIComponent(loopName)}/events/${encodeURIComponent(id)}`;
  const response = await fetchWithKey(url).catch(() => null);
  if (!response) {
    byId("lookup-error").textContent = "The service cannot be reached.";
    return;
  }
  const answer = await response.json();
  byId("report").hidden = !response.ok;
  byId("lookup-error").textContent = response.ok ? "" : answer.error.message;
  if (!response.ok) return;
  changeView({ event: id });
  showReport(answer, shownData.forgetting.learned);
}

function listSteps({ starts, width, counts, learning, drift }) {
  const lines = [
    ["this loop", learning.reward],
    ["first action", learning.rewardBaseline],
    ["random action", learning.rewardUniform],
    ["prediction error", drift.error],
  ];
  const toTime = (microseconds) => new Date(microseconds / 1000).toISOString();
  const ends = (value, error) => {
    if (value === null || error === null) return [value, null, null];
    return [value, value - 2 * error, value + 2 * error];
  };
  const isIn = (bins, bin) => Number(bins.includes(bin));
  return [
    [
      ...["from", "until", "decisions"],
      ...lines.flatMap(([name]) => [name, `${name} low`, `${name} high`]),
      ...["predictions worse than usual", "share of clicks changed"],
    ],
    ...starts.map((start, bin) => [
      toTime(start),
      toTime(start + width),
      counts[bin],
      ...lines.flatMap(([, { value, error }]) => ends(value[bin], error[bin])),
      isIn(drift.alarms, bin),
      isIn(drift.clickAlarms, bin),
    ]),
  ];
}

const DOWNLOADS = {
  time: () => listSteps(shownData),
  actions: () => listGroups(shownData.chosen.actions, "action"),
  segments: () => listGroups(shownData.segments.segments, shownData.segments.feature),
};

async function listLoops() {
  const response = await fetchWithKey("/board.json").catch(() => null);
  if (!response?.ok) return;
  const { loops } = await response.json();
  const options = loops.map(({ name }) => {
    const option = createElement("option", "", name);
    option.value = name;
    option.selected = name === loopName;
    return option;
  });
  byId("loops").replaceChildren(...options);
}

function showCommands() {
  const path = loopName === "default" ? "" : `/loops/${encodeURIComponent(loopName)}`;
  const base = `${location.origin}${path}/personalizer/v1.0`;
  const createCommand = (endpoint, body) =>
    `curl ${base}${endpoint} \\\n  -H 'content-type: application/json' \\\n  -d '${body}'`;
  const request =
    '{"eventId": "first", "contextFeatures": [{"time": "morning"}],\n' +
    '    "actions": [{"id": "tea", "features": []}, {"id": "coffee", "features": []}]}';
  byId("rank-command").textContent = createCommand("/rank", request);
  byId("reward-command").textContent = createCommand("/events/first/reward", '{"value": 1}');
}

byId("loops").addEventListener("change", () => {
  const name = byId("loops").value;
  const path = name === "default" ? "/" : `/loops/${encodeURIComponent(name)}`;
  const range = readView("range");
  location.assign(path + (range && `?range=${range}`));
});
byId("range").addEventListener("change", () => {
  const range = byId("range").value;
  if (range === "fixed") return;
  changeView({ range, since: "", until: "" });
  showRange();
  refresh();
});
byId("feature").addEventListener("change", () => {
  changeView({ by: byId("feature").value });
  byId("feature").blur();
  refresh();
});
for (const button of document.querySelectorAll("[data-download]")) {
  const part = button.dataset.download;
  button.addEventListener("click", () => {
    downloadCsv(`${loopName}-${part}.csv`, DOWNLOADS[part]());
  });
}
byId("lookup-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = byId("event").value.trim();
  if (id) lookUpEvent(id);
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  storeKey(byId("key").value);
  listLoops();
  refresh();
});
let resizeTimer = 0;
addEventListener("resize", () => {
  clearTimeout(resizeTimer);
  resizeTimer = setTimeout(() => {
    if (shownData) showData();
  }, RESIZE_MILLISECONDS);
});

document.title = `${loopName} · Windvane`;
byId("zone").textContent = `times: ${describeZone()}`;
showRange();
showCommands();
listLoops();
refreshForever().then(() => {
  const id = readView("event");
  if (!id || !shownData) return;
  byId("event").value = id;
  lookUpEvent(id);
});
showEvaluationForever(clockOffset);
