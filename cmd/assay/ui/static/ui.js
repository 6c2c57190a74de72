// Forms with data-live show their results as the user types: the page is fetched, and the parts that data-live names are replaced.
// Parts with data-fresh are replaced when the state is read again. Everything but that works without this file.
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
      const response = await fetch(address, { method: form.method, body: post ? fields : undefined, signal: own.signal, headers: { "Assay-Part": "1" } });
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

// replace puts the parts of another page into this one. What the user opened, scrolled to or focused stays so.
function replace(parts, next) {
  for (const id of parts) {
    const old = document.getElementById(id), part = next.getElementById(id);
    if (!part) return fail([id], next.body.textContent.trim().slice(0, 200));
    const open = new Map([...old.querySelectorAll("details")].map((d) => [named(d), d.open]));
    const boxes = [...old.querySelectorAll(".scroll, pre")].map((e) => [e.scrollLeft, e.scrollTop]);
    const scroll = old.scrollTop;
    const focused = old.contains(document.activeElement) ? controls(old).indexOf(document.activeElement) : -1;
    const address = focused >= 0 && document.activeElement.getAttribute("href");
    old.replaceWith(part);
    for (const d of part.querySelectorAll("details")) {
      const before = open.get(named(d));
      if (before !== undefined) d.open = before;
    }
    part.scrollTop = scroll;
    [...part.querySelectorAll(".scroll, pre")].forEach((e, i) => { if (boxes[i]) [e.scrollLeft, e.scrollTop] = boxes[i]; });
    if (focused >= 0) {
      const now = controls(part);
      (now.find((e) => address && e.getAttribute("href") === address) ?? now[focused])?.focus({ preventScroll: true });
    }
  }
}

const controls = (part) => [...part.querySelectorAll("a[href], button, input, summary, [tabindex]")];

// named returns the text of the summary of a details element without its numbers, which may change.
const named = (details) => details.querySelector("summary").textContent.replace(/\d+/g, "");

function fail(parts, message) {
  for (const id of parts) document.getElementById(id)?.removeAttribute("aria-busy");
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

// refreshing reads the state again in intervals, and shows it without a new page. It waits while the page is not visible or a part of it
// is selected, and the choice of the user is kept for all pages.
function refreshing(label) {
  const box = label.querySelector("input"), off = "assay-refresh-off";
  const every = () => 1000 * document.getElementById("status").dataset.every;
  const left = () => every() - (now() - Date.parse(document.querySelector("#status time").dateTime));
  let timer;
  label.hidden = false;
  box.checked = localStorage.getItem(off) === null;
  const later = (wait) => {
    clearTimeout(timer);
    if (box.checked) timer = setTimeout(again, wait);
  };
  const again = async () => {
    if (document.hidden || !getSelection().isCollapsed) return later(1000);
    try {
      const form = document.getElementById("reload");
      await fetch(form.action, { method: "post", body: new URLSearchParams({ back: "./", shown: document.querySelector("#status time").dateTime }), redirect: "manual" });
      let next;
      do {
        await new Promise((done) => setTimeout(done, pause));
        next = await page(location.href);
      } while (next.querySelector("[data-reading]"));
      show(next);
      document.getElementById("failure")?.remove();
    } catch {
      fail([], "No answer from assay ui: is it still running? The page shows what it read before.");
    }
    later(left() > 0 ? left() : every()); // not at once if it could not be read
  };
  box.addEventListener("change", () => {
    if (box.checked) localStorage.removeItem(off);
    else localStorage.setItem(off, "1");
    later(0);
  });
  later(left()); // what is shown was read before this page
}

async function page(address, options) {
  const response = await fetch(address, options);
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

// show replaces the parts of the page with data-fresh. The playground evaluates what is in its fields.
function show(next) {
  const parts = [...document.querySelectorAll("[data-fresh]")].map((e) => e.id).filter((id) => next.getElementById(id));
  replace(parts, next);
  compareClocks();
  pending();
  const form = document.querySelector("form[data-live][method=post]");
  if (form) form.requestSubmit();
}

// now returns the time of assay ui: the browser can run on a machine with another one.
let skew;
const now = () => Date.now() - skew;
const compareClocks = () => { skew = Date.now() - Date.parse(document.getElementById("status").dataset.now); };

// forms are the forms of ages, as kubectl prints them: below a limit in seconds, in one unit, or in two.
const forms = [
  [120, 1], [600, 60, 1], [10800, 60], [28800, 3600, 60], [172800, 3600], [691200, 86400, 3600], [63072000, 86400], [252288000, 31536000, 86400],
  [Infinity, 31536000],
];
const units = { 1: "s", 60: "m", 3600: "h", 86400: "d", 31536000: "y" };

function age(seconds) {
  const [, unit, second] = forms.find(([limit]) => seconds < limit);
  const rest = second && Math.floor(seconds % unit / second);
  return Math.floor(seconds / unit) + units[unit] + (rest ? rest + units[second] : "");
}

// ages keeps the ages of a page current.
function ages() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const since = Math.floor((now() - Date.parse(time.dateTime)) / 1000);
    const text = age(Math.max(0, time.classList.contains("left") ? -since : since));
    if (time.textContent !== text) time.textContent = text;
  }
}

// pending shows the page again while it waits for the evaluation of rules.
function pending() {
  if (document.querySelector("[data-pending]")) setTimeout(async () => show(await page(location.href)), 1000);
}

compareClocks();
pending();

// Squares say on hover which node they are: a title for each of thousands would make the page large.
document.addEventListener("mouseover", (event) => {
  const square = event.target.closest?.(".squares a:not([title])");
  const color = square && document.querySelector(".sq." + square.className)?.parentElement;
  if (square) square.title = new URLSearchParams(square.search).get("name") + (color ? ": " + color.textContent.replace(/[\d,]+\s*$/, "").trim() : "");
});
document.querySelectorAll("form[data-live]").forEach(live);
document.querySelectorAll("#refresh").forEach(refreshing);
setInterval(ages, 1000);
document.querySelectorAll("textarea").forEach(editor);

// Buttons with data-copy copy a command. Without this file they are hidden.
document.querySelectorAll("button[data-copy]").forEach((button) => {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  });
});

// The key / goes to the search field of the page, or to that of all pages. Escape leaves it.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("[data-search]") ?? document.getElementById("find");
  if (event.key === "/" && field && !event.target.closest("input, textarea")) {
    event.preventDefault();
    field.focus();
    field.select();
  } else if (event.key === "Escape" && event.target.closest("input, textarea")) {
    event.target.blur();
  }
});
