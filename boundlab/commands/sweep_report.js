// The list of instances: words and choices filter it, the heads of its columns sort it.
(() => {
  const table = document.getElementById("instances");
  const words = document.getElementById("words");
  const choices = Array.from(document.querySelectorAll("#controls select"));

  const keeps = (row) => {
    const text = row.textContent.toLowerCase();
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = choices.every((one) => !one.value || row.dataset[one.name] === one.value);
    return chosen && wanted.every((word) => text.includes(word));
  };
  const items = Array.from(table.tBodies[0].rows);
  const list = listing({ items, keeps, count: document.getElementById("count") });

  const value = (column) => (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value || NaN);
  };
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      list.sort(value(column), descending);
    });
    head.append(button);
  });
  words.addEventListener("input", list.filter);
  for (const one of choices) one.addEventListener("change", list.filter);
  document.getElementById("controls").hidden = false;
  list.show();
})();
