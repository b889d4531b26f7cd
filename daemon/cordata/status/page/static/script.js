// Replaces the parts of the page that have changed, as /live sends them: HTML by the part's id.
"use strict";

const connection = document.getElementById("connection");
const source = new EventSource("/live");

source.onmessage = (message) => {
  connection.textContent = "Live.";
  const focused = document.activeElement.id;
  for (const [id, html] of Object.entries(JSON.parse(message.data))) {
    const part = document.getElementById(id);
    const left = part.querySelector(".wide")?.scrollLeft ?? 0;
    part.innerHTML = html;
    part.hidden = html === "";
    part.querySelector(".wide")?.scrollTo({ left });
  }
  // A button that was replaced has lost the focus; its successor has the same id.
  if (focused && document.activeElement.id !== focused) {
    document.getElementById(focused)?.focus({ preventScroll: true });
  }
};

source.onerror = () => {
  connection.textContent = source.readyState === EventSource.CLOSED
    ? "Not live: reload the page."
    : "Not connected: trying again.";
};
