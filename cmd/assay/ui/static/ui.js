// Forms with data-live show their results as the user types: the page is fetched, and the parts that data-live names are replaced.
// Everything but that works without this file.
"use strict";

const pause = 250; // milliseconds after the last key

function live(form) {
  let timer, request;
  const show = async () => {
    clearTimeout(timer);
    if (request) request.abort();
    const own = request = new AbortController();
    const parts = form.dataset.live.split(" ");
    const fields = new URLSearchParams(new FormData(form));
    const post = form.method === "post";
    const address = form.getAttribute("action") + (post ? "" : "?" + fields);
    for (const id of parts) document.getElementById(id).setAttribute("aria-busy", "true");
    try {
      const response = await fetch(address, { method: form.method, body: post ? fields : undefined, signal: own.signal });
      const next = new DOMParser().parseFromString(await response.text(), "text/html");
      replace(parts, next);
      if (!post) history.replaceState(null, "", address);
    } catch (error) {
      if (error.name === "AbortError") return;
      fail(parts, "No answer from assay ui: is it still running? Start it again and open the address that it prints.");
    }
  };
  form.addEventListener("input", (event) => {
    if (event.target.name === "columns") return; // half a name is no column
    clearTimeout(timer);
    timer = setTimeout(show, pause);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show();
  });
}

// replace puts the parts of another page into this one. Features that were opened or closed stay so.
function replace(parts, next) {
  for (const id of parts) {
    const old = document.getElementById(id), part = next.getElementById(id);
    if (!part) return fail([id], next.body.textContent.trim().slice(0, 200));
    const open = new Map([...old.querySelectorAll("details")].map((d) => [d.querySelector("summary").textContent, d.open]));
    const scroll = old.scrollTop;
    old.replaceWith(part);
    for (const d of part.querySelectorAll("details")) {
      const before = open.get(d.querySelector("summary").textContent);
      if (before !== undefined) d.open = before;
    }
    part.scrollTop = scroll;
  }
}

function fail(parts, message) {
  for (const id of parts) document.getElementById(id).removeAttribute("aria-busy");
  const old = document.getElementById("failure");
  if (old) old.remove();
  const banner = document.createElement("p");
  banner.id = "failure";
  banner.className = "banner bad";
  banner.setAttribute("role", "alert");
  banner.textContent = message;
  document.getElementById("main").prepend(banner);
}

// editor keeps the text and the numbers of its lines together.
function editor(text) {
  const fit = () => {
    const lines = text.value.split("\n").length, gutter = document.getElementById("gutter");
    text.rows = Math.max(lines, 16);
    while (gutter.children.length > lines) gutter.lastChild.remove();
    while (gutter.children.length < lines) gutter.append(Object.assign(document.createElement("li"), { textContent: gutter.children.length + 1 }));
  };
  text.addEventListener("input", fit);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) text.form.requestSubmit();
  });
}

document.querySelectorAll("form[data-live]").forEach(live);
document.querySelectorAll("textarea").forEach(editor);

// The key / goes to the search field of the page, Escape leaves it.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("[data-search]");
  if (event.key === "/" && field && !event.target.closest("input, textarea")) {
    event.preventDefault();
    field.focus();
    field.select();
  } else if (event.key === "Escape" && event.target.closest("input, textarea")) {
    event.target.blur();
  }
});
