// Sorting and filtering of the list of instances. Without it the list is whole, in its own order.
"use strict";
(() => {
  const table = document.getElementById("instances");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const words = document.getElementById("words");
  const choices = Array.from(document.querySelectorAll("#controls select"));
  const count = document.getElementById("count");

  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const chosen = choices.every((one) => !one.value || row.dataset[one.name] === one.value);
      row.hidden = !(chosen && wanted.every((word) => text.includes(word)));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length} shown`;
  };

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value || NaN);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  const missing = (one) => Number.isNaN(one) || one === "";

  const sort = (head, column) => {
    const descending = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const keyed = rows.map((row) => [value(row, column), row]);
    keyed.sort(([a], [b]) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return descending ? compare(b, a) : compare(a, b);
    });
    body.append(...keyed.map(([, row]) => row));
  };

  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(head, column));
    head.append(button);
  });
  words.addEventListener("input", show);
  for (const one of choices) one.addEventListener("change", show);
  document.getElementById("controls").hidden = false;
  show();
})();
