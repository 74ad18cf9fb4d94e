"use strict";
(function () {
  const LEFT = 10, ROOM = 1180, LETTER = 7;
  const byId = (id) => document.getElementById(id);
  const total = Math.max(1, Number(byId("frames").getAttribute("data-total")));
  const frames = Array.from(document.querySelectorAll(".f"), (group) => {
    const [title, rect, text] = group.children;
    const full = title.textContent;
    return {
      group, rect, text, full,
      name: full.slice(0, full.lastIndexOf(": ")),
      from: Number(group.getAttribute("data-x")),
      count: Number(group.getAttribute("data-n")),
      row: Number(rect.getAttribute("y")),
      fill: rect.getAttribute("fill"),
    };
  });

  function fitting(name, width) {
    const room = Math.floor((width - 6) / LETTER), letters = Array.from(name);
    if (room < 3) return "";
    return letters.length <= room ? name : letters.slice(0, room - 2).join("") + "..";
  }

  // Shows the part of the graph above one frame, and that frame's own callers in full width.
  function zoom(to) {
    const end = to.from + to.count;
    for (const f of frames) {
      const from = Math.max(f.from, to.from), until = Math.min(f.from + f.count, end);
      const shown = until > from && (f.row <= to.row || (f.from <= to.from && f.from + f.count >= end));
      f.group.style.display = shown ? "" : "none";
      if (!shown) continue;
      const x = LEFT + (from - to.from) / to.count * ROOM, width = (until - from) / to.count * ROOM;
      f.rect.setAttribute("x", x);
      f.rect.setAttribute("width", width);
      f.text.setAttribute("x", x + 3);
      f.text.textContent = fitting(f.name, width);
      f.group.style.opacity = f.row > to.row ? 0.6 : 1;
    }
    byId("reset").setAttribute("visibility", to.count < total ? "visible" : "hidden");
  }

  function search() {
    const term = window.prompt("Part of a name, or a regular expression:", "");
    if (term === null) return;
    let match;
    try {
      const pattern = new RegExp(term);
      match = (name) => term !== "" && pattern.test(name);
    } catch (_) {
      match = (name) => name.includes(term);
    }
    // A frame inside one that was found is not counted again.
    let covered = 0, sum = 0;
    const found = frames.filter((f) => match(f.name));
    for (const f of frames) f.rect.setAttribute("fill", f.fill);
    for (const f of found) f.rect.setAttribute("fill", "#e040e0");
    found.sort((a, b) => a.from - b.from || b.count - a.count);
    for (const f of found) {
      const end = f.from + f.count;
      if (end > covered) {
        sum += end - Math.max(covered, f.from);
        covered = end;
      }
    }
    byId("found").textContent = term === "" ? " " : "Found: " + (sum * 100 / total).toFixed(1) + "%";
  }

  for (const f of frames) {
    f.group.addEventListener("click", () => zoom(f));
    f.group.addEventListener("mouseover", () => { byId("line").textContent = f.full; });
    f.group.addEventListener("mouseout", () => { byId("line").textContent = " "; });
  }
  byId("reset").addEventListener("click", () => zoom(frames[0]));
  byId("search").addEventListener("click", search);
  window.addEventListener("keydown", (event) => {
    if (event.key === "F3" || (event.ctrlKey && event.key === "f")) {
      event.preventDefault();
      search();
    }
  });
})();
