// A list that is filtered, sorted and shown in parts. Without a script it is whole, in its order.
"use strict";
const listing = ({ items, keeps, count, page = Infinity, more = null, shown = () => {} }) => {
  const parent = items.length ? items[0].parentNode : null;
  let order = items;
  let limit = page;

  // What is not shown is taken out of the page: thousands of hidden items would make it slow.
  const show = () => {
    const kept = order.filter(keeps);
    const visible = kept.slice(0, limit);
    visible.forEach(shown);
    if (parent) parent.replaceChildren(...visible);
    const rest = kept.length > limit ? `, the first ${limit} are shown` : "";
    count.textContent = `${kept.length} of ${items.length} fit${rest}`;
    if (more) more.hidden = kept.length <= limit;
  };

  const filter = () => {
    limit = page;
    show();
  };

  const missing = (key) => Number.isNaN(key) || key === "";
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));

  const sort = (key, descending) => {
    const keyed = items.map((one) => [key(one), one]);
    keyed.sort(([a], [b]) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return descending ? compare(b, a) : compare(a, b);
    });
    order = keyed.map(([, one]) => one);
    filter();
  };

  if (more) {
    more.addEventListener("click", () => {
      limit += page;
      show();
    });
  }
  return { show, filter, sort };
};
