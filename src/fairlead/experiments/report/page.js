/* What moves in the page: the filter, charts when they come into view, the curves' explorer. */
"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const read = (element) => JSON.parse(element.textContent);

  // ---- charts: text and lines take the page's colours, so light and dark need no second drawing
  const font = "system-ui, sans-serif";
  const text = { labelColor: "currentColor", titleColor: "currentColor", labelFont: font, titleFont: font,
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
  const config = {
    background: "transparent",
    view: { stroke: null },
    axis: { ...text, grid: true, gridColor: "#8893a0", gridOpacity: 0.22, domainColor: "#8893a0",
      tickColor: "#8893a0", labelLimit: 140, tickCount: 6 },
    axisX: { grid: false },
    legend: { ...text, labelLimit: 220, columns: 4, symbolType: "circle" },
    bar: { color: "#3b82c4" }, line: { color: "#3b82c4" }, point: { color: "#3b82c4" },
    area: { color: "#3b82c4" }, rule: { color: "#8893a0" },
  };
  const options = { actions: false, renderer: "svg", config, mode: "vega-lite",
    tooltip: { disableDefaultStyle: false, theme: "custom" } };

  // On a dark page colours are mixed with a third of white: some of them are nearly black.
  const night = matchMedia("(prefers-color-scheme: dark)");
  const lit = (colour) => {
    if (!night.matches || !/^#[0-9a-f]{6}$/i.test(colour)) return colour;
    const parts = [1, 3, 5].map((at) => Math.round(parseInt(colour.slice(at, at + 2), 16) * 0.65 + 255 * 0.35));
    return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
  };
  const allLit = (value) => {
    if (typeof value === "string") return lit(value);
    if (Array.isArray(value)) return value.map(allLit);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, key === "values" ? of : allLit(of)]));
  };
  const embed = (element, specification) =>
    vegaEmbed(element, allLit(specification), options).then((done) => {
      element.dataset.drawn = "yes";
      return done.view;
    }, (error) => {
      element.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
      throw error;
    });

  const whenSeen = (elements, draw) => {
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((each) => each.isIntersecting)) {
        watch.unobserve(entry.target);
        draw(entry.target);
      }
    }, { rootMargin: "400px 0px" });
    elements.forEach((element) => watch.observe(element));
  };

  const specificationOf = (chart) =>
    read(chart.closest(".panels").querySelector(".charts"))[Number(chart.dataset.chart)];
  whenSeen(all(".chart"), (chart) => embed(chart, specificationOf(chart)));
  night.addEventListener("change", () => all(".chart[data-drawn]").forEach((chart) =>
    embed(chart, specificationOf(chart))));

  // ---- the numbers behind a chart, as a table
  const table = (records) => {
    const names = [...new Set(records.flatMap(Object.keys))].filter((name) => name !== "order");
    const made = document.createElement("table");
    const line = (parent, cells, kind) => {
      const row = parent.insertRow();
      for (const cell of cells) {
        const item = document.createElement(kind);
        item.textContent = cell ?? "";
        row.append(item);
      }
    };
    line(made.createTHead(), names, "th");
    const body = made.createTBody();
    records.forEach((record) => line(body, names.map((name) => record[name]), "td"));
    return made;
  };
  const recordsOf = (specification) => {
    const named = specification.datasets?.[specification.data.name];
    return named ?? specification.data.values;
  };
  all(".numbers").forEach((details) => details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const box = document.createElement("div");
    box.tabIndex = 0;
    box.append(table(recordsOf(specificationOf(details.parentElement.querySelector(".chart")))));
    details.append(box);
  }));

  // ---- the filter: by verdict and by words; what is chosen stands in the list and on the page
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

  // ---- the explorer: runs, clients, a metric and a time
  const charts = read(document.getElementById("explorer-charts"));
  const explore = async (box) => {
    const { runs, clients, metrics } = read(box.querySelector(".curves"));
    const colour = new Map(clients);
    const choice = (name) => box.querySelector(`[data-choice="${name}"]`);
    const from = choice("from"), to = choice("to");
    const valuesOf = (metric) => runs.flatMap((run) => Object.values(run.curves[metric] ?? {}).flat());
    const last = Math.max(1, ...runs.map((run) => run.at.at(-1) ?? 0));
    const rowsOf = (run, which) => clients.flatMap(([client]) => {
      const chip = box.querySelector(`.chip[data-client="${CSS.escape(client)}"]`);
      const values = runs[run].curves[choice("metric").value]?.[client];
      if (chip.ariaPressed !== "true" || !values) return [];
      return runs[run].at.map((t, i) => ({ t, v: values[i], client, colour: lit(colour.get(client)), which,
        key: `${which} ${client}`, run: runs[run].name }));
    });
    // The first rows come with the chart: without any, its axes would have no ends.
    const filled = (chart) => ({ ...chart, datasets: { curves: rowsOf(choice("run").value, "run") } });
    let detail, overview;
    const draw = async () => {
      [detail, overview] = await Promise.all([
        embed(box.querySelector(".detail"), filled(charts.detail)),
        embed(box.querySelector(".overview"), filled(charts.overview)),
      ]);
      overview.addSignalListener("brush", (_, { t }) => (t && t[1] > t[0] ? window_(t[0], t[1]) : window_(0, last)));
      await overview.signal("begin", 0).signal("end", last).runAsync();
      await window_(0, last);
      await update();
    };
    const window_ = (begin, end) => {
      from.value = Math.round(begin * 10) / 10;
      to.value = Math.round(end * 10) / 10;
      return detail.signal("begin", begin).signal("end", end).runAsync();
    };
    const update = async () => {
      const most = valuesOf(choice("metric").value).reduce((top, value) => Math.max(top, value), 0);
      const chosen = rowsOf(choice("run").value, "run");
      const rows = choice("beside").value === "" ? chosen
        : [...chosen, ...rowsOf(choice("beside").value, "beside")];
      await detail.signal("top", most * 1.04 || 1).data("curves", rows).runAsync();
      await overview.data("curves", chosen).runAsync();
    };
    all("select", box).forEach((select) => select.addEventListener("change", update));
    all(".chip", box).forEach((chip) => chip.addEventListener("click", () => {
      chip.ariaPressed = String(chip.ariaPressed !== "true");
      update();
    }));
    const typed = () => {
      const begin = Number(from.value), end = Number(to.value);
      if (end > begin) detail.signal("begin", begin).signal("end", end).runAsync();
    };
    from.addEventListener("change", typed);
    to.addEventListener("change", typed);
    box.querySelector(".whole").addEventListener("click", () => window_(0, last));
    night.addEventListener("change", draw);
    await draw();
    box.dataset.ready = "yes";
  };
  whenSeen(all(".explorer"), explore);
})();
