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

/** Create an HTML element. Names come from clients of the service, so text is never markup. */
export function createElement(kind, className, text) {
  const element = document.createElement(kind);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}
