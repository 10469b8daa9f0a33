// Numbers, times and elements as the dashboard shows them.

const MINUTE = 60e6; // microseconds, as all times of the dashboard
const DAY = 86_400e6;

/** Whether a number is there: JSON has null for NaN. */
export function isKnown(value) {
  return value !== null && value !== undefined;
}

export function formatCount(count) {
  return count.toLocaleString("en");
}

export function formatNumber(value) {
  return isKnown(value) ? value.toFixed(3).replace("-", "−") : "–";
}

export function formatSigned(value) {
  return (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);
}

export function formatShare(share) {
  return isKnown(share) ? `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %` : "–";
}

/** A share as a change: +12 %, with a decimal if it is small. */
export function formatPercent(share) {
  const percent = 100 * share;
  const text = Math.abs(percent).toFixed(Math.abs(percent) < 9.95 ? 1 : 0);
  return `${percent < 0 ? "−" : "+"}${text} %`;
}

/** A value and the ends of its interval; `isChange` gives each a sign. */
export function formatInterval({ value, low, high }, isChange = false) {
  const format = isChange ? formatSigned : formatNumber;
  return `${format(value)} (${format(low)} to ${format(high)})`;
}

/** A value with two standard errors. */
export function formatEstimate(value, error) {
  return formatNumber(value) + (isKnown(error) ? ` ± ${(2 * error).toFixed(3)}` : "");
}

/** A time, as exact as a chart of this span needs. */
export function formatTime(microseconds, span) {
  const date = new Date(microseconds / 1000);
  const day = date.toLocaleDateString("en", { day: "numeric", month: "short" });
  if (span > 3 * DAY) return day;
  const parts = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (span < 10 * MINUTE) parts.second = "2-digit";
  if (span < MINUTE / 6) parts.fractionalSecondDigits = 1;
  const time = date.toLocaleTimeString("en-GB", parts);
  return span > DAY ? `${day}, ${time}` : time;
}

/** The time zone of all times on the page, such as "Europe/Rome (UTC+01:00)". */
export function describeZone() {
  const offset = -new Date().getTimezoneOffset(); // minutes
  const [hours, minutes] = [Math.floor(Math.abs(offset) / 60), Math.abs(offset) % 60];
  const digits = [hours, minutes].map((number) => String(number).padStart(2, "0")).join(":");
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name === "UTC" ? name : `${name} (UTC${offset < 0 ? "−" : "+"}${digits})`;
}

/** A moment in full, with its zone. */
export function formatMoment(microseconds) {
  return new Date(microseconds / 1000).toLocaleString("en-GB", {
    dateStyle: "medium",
    timeStyle: "long",
  });
}

/** Create an HTML element. Names come from clients of the service, so text is never markup. */
export function createElement(kind, className, text) {
  const element = document.createElement(kind);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}
