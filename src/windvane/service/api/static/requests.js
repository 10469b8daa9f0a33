// Which loop the page shows, and requests to the service with the key of the page.

const loopPath = location.pathname.match(/^\/loops\/([^/]+)$/);
export const loopName = loopPath ? decodeURIComponent(loopPath[1]) : "default";

/** Keep a key for as long as the tab is open. */
export function storeKey(key) {
  sessionStorage.setItem("key", key);
}

/** Fetch from the service; a browser that was asked for a password sends it by itself. */
export function fetchWithKey(url, options = {}) {
  const key = sessionStorage.getItem("key");
  const headers = key ? { "Ocp-Apim-Subscription-Key": key } : {};
  const address = location.origin + url; // an address with a password in it cannot be fetched
  return fetch(address, { ...options, headers: { ...headers, ...options.headers } });
}

/** Send a change to the loop; the error is the sentence of the service. */
export async function sendChange(method, path, body) {
  const url = `/loops/${encodeURIComponent(loopName)}/personalizer/${path}`;
  const options = { method, headers: { "content-type": "application/json" } };
  if (body !== undefined) options.body = JSON.stringify(body);
  const response = await fetchWithKey(url, options);
  const text = await response.text();
  if (!response.ok) throw new Error(JSON.parse(text).error.message);
  return text ? JSON.parse(text) : null;
}
