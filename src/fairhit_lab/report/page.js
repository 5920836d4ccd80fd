/* The filter of the studies: by verdict, and by words. */
"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const find = document.getElementById("find");
  const shown = document.getElementById("shown");
  const sections = all(".study");
  const entries = new Map(all("nav li").map((item) => [item.dataset.study, item]));
  const filters = all(".filter");
  const narrow = () => {
    const verdict = filters.find((each) => each.ariaPressed === "true").dataset.verdict;
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const section of sections) {
      const entry = entries.get(section.id);
      const about = `${section.id} ${entry.textContent}`.toLowerCase();
      const fits = (verdict === "all" || section.dataset.verdicts.split("|").includes(verdict))
        && words.every((word) => about.includes(word));
      section.hidden = entry.hidden = !fits;
      count += fits;
    }
    all(".group").forEach((group) => { group.hidden = !all("li", group).some((each) => !each.hidden); });
    shown.textContent = count === sections.length ? `${count} studies` : `${count} of ${sections.length} studies`;
  };
  filters.forEach((button) => button.addEventListener("click", () => {
    filters.forEach((each) => { each.ariaPressed = String(each === button); });
    narrow();
  }));
  find.addEventListener("input", narrow);
  // A link to a study that the filter hides shows all again.
  const show = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target?.hidden) return;
    find.value = "";
    filters[0].click();
    target.scrollIntoView();
  };
  addEventListener("hashchange", show);
  if (matchMedia("(max-width: 60rem)").matches) document.querySelector(".list").open = false;
})();
