// The cards of images: verdict, method, radius and label filter them; the radius is that of the page.
(() => {
  const controls = document.getElementById("controls");
  const cards = Array.from(document.querySelectorAll("#cards > .card"));
  const select = (name) => controls.querySelector(`select[name="${name}"]`);
  const chosen = (name) => (select(name) ? select(name).value : "");
  const radii = Array.from(document.querySelectorAll('input[name="radius"]'));
  const words = new Map(Array.from(select("verdict").options, (one) => [one.value, one.text]));

  const place = () => Number(chosen("method")) * Math.max(radii.length, 1) + Number(chosen("radius"));
  const verdict = (card) => card.dataset.verdicts[place()];
  const value = (card) => Number(card.dataset.values.split(" ")[place()]);
  const short = (one) => (Number.isFinite(one) ? String(Number(one.toPrecision(3))) : String(one).replace("Infinity", "∞"));

  const keeps = (card) => {
    const label = chosen("label");
    const wanted = chosen("verdict");
    return (!label || card.dataset.label === label) && (!wanted || verdict(card) === wanted);
  };

  // What a card says above its table is about the method and the radius that are chosen.
  const shown = (card) => {
    const badge = card.querySelector(".badge");
    const radius = card.querySelector(".radius");
    if (!radius) return;
    const word = words.get(verdict(card)) ?? "not computed";
    badge.textContent = word;
    badge.className = `badge ${word}`;
    card.querySelector(".margin").textContent = short(value(card));
    if (radii.length) radius.textContent = radii[chosen("radius")].labels[0].textContent;
  };

  const list = listing({
    items: cards,
    keeps,
    shown,
    count: document.getElementById("count"),
    page: 48,
    more: document.getElementById("more"),
  });

  const order = () => {
    if (chosen("order") === "number") list.sort((card) => Number(card.dataset.image), false);
    else list.sort(value, chosen("order") === "down");
  };

  for (const one of controls.querySelectorAll("select")) {
    one.addEventListener("change", () => {
      if (one.name === "radius") radii[one.value].checked = true;
      if (one.name === "verdict" || one.name === "label") list.filter();
      else order();
    });
  }
  for (const one of radii) {
    one.addEventListener("change", () => {
      select("radius").value = one.value;
      order();
    });
  }
  const begin = () => {
    const checked = radii.find((one) => one.checked);
    if (checked) select("radius").value = checked.value;
    order();
  };
  controls.hidden = false;
  begin();
  window.addEventListener("pageshow", (event) => { if (event.persisted) begin(); });
})();
