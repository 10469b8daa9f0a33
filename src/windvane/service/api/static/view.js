// What the page shows, as the query of its address, so that a link opens the same view.

const KEYS = ["range", "since", "until", "by", "event", "evaluation", "policy"];
const query = new URLSearchParams(location.search);

/** A part of the view; "" if the address does not have it. */
export function readView(key) {
  return query.get(key) ?? "";
}

/** Change parts of the view, and the address with them; an empty part is left out. */
export function changeView(parts) {
  for (const [key, value] of Object.entries(parts)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  history.replaceState(null, "", createLink({}));
}

/** The address of this view with other parts. */
export function createLink(parts) {
  const wanted = new URLSearchParams();
  for (const key of KEYS) {
    const value = key in parts ? parts[key] : query.get(key);
    if (value) wanted.set(key, value);
  }
  const text = wanted.toString();
  return location.pathname + (text && `?${text}`);
}
