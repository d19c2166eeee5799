"use strict";
(() => {
  const figures = JSON.parse(document.querySelector('script[type="application/json"]').textContent);
  const narrow = () => window.innerWidth < 640;

  // --- tables: sorting by number or word; what has no number stays last -------------------------------------------
  const key = (row, column) => {
    const cell = row.children[column];
    const number = cell.dataset.value;
    return number === undefined ? null : Number(number);
  };
  const compare = (column, numeric, sign) => (a, b) => {
    if (!numeric) return sign * a.children[column].textContent.localeCompare(b.children[column].textContent, "en", { numeric: true });
    const [x, y] = [key(a, column), key(b, column)];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (x - y);
  };
  document.querySelectorAll("table.sortable").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const ascending = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows].sort(compare(column, head.classList.contains("num"), ascending ? 1 : -1));
        table.tBodies[0].append(...rows);
      });
    });
  });

  // --- where a number comes from: on hover by its title; by click, touch or focus in the line below the table --------
  document.querySelectorAll(".tabled").forEach((holder) => {
    const told = holder.querySelector(".told[aria-live]");
    if (!told) return;
    const table = holder.querySelector("table");
    const tell = (cell) => {
      const column = table.tHead.rows[0].cells[cell.cellIndex].innerText.replace(/\s+/g, " ").trim();
      told.textContent = `${cell.parentElement.cells[0].textContent}, ${column}: ${(cell.title || cell.innerText).replace(/\n/g, "; ")}`;
    };
    // one stop of the tab key for the whole table; the arrows go from cell to cell
    let stop = table.querySelector("td[title]");
    if (!stop) return;
    table.querySelectorAll("td").forEach((cell) => { cell.tabIndex = cell === stop ? 0 : -1; });
    table.addEventListener("focusin", (event) => {
      const cell = event.target.closest("td");
      if (!cell) return;
      stop.tabIndex = -1;
      stop = cell;
      stop.tabIndex = 0;
      tell(cell);
    });
    const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    table.addEventListener("keydown", (event) => {
      const step = STEPS[event.key], cell = event.target.closest("td");
      if (!step || !cell) return;
      event.preventDefault();
      const row = table.tBodies[0].rows[cell.parentElement.sectionRowIndex + step[0]];
      const next = row && row.cells[cell.cellIndex + step[1]];
      if (next && next.matches("td")) next.focus();
    });
    holder.addEventListener("click", (event) => {
      const cell = event.target.closest("td[title]");
      if (cell) tell(cell);
    });
  });

  // --- figures -----------------------------------------------------------------------------------------------------
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "star"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash"];
  const GLYPHS = "\u25cf\u25a0\u25c6\u25b2\u271a\u2716\u25bc\u2605";
  const STROKES = ["", "5 3", "2 2", "5 2 2 2", "8 3", "8 2 2 2", "", "5 3"];
  const stroke = (slot) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, value] of Object.entries({ x1: 0, x2: 20, y1: 5, y2: 5, stroke: "currentColor", "stroke-width": 2.5, "stroke-dasharray": STROKES[slot] })) line.setAttribute(name, value);
    svg.setAttribute("viewBox", "0 0 20 10");
    svg.append(line);
    return svg;
  };
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (slot) => style(`--c${slot % 8}`);
  // plotly reads a few tags in texts: names are words, never markup
  const words = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("\n", "<br>");
  const place = (value) => (typeof value === "string" ? words(value) : value);

  const trace = (series, hidden) => {
    const paint = series.quiet ? style("--soft") : colour(series.slot);
    const out = {
      name: words(series.name), x: series.x.map(place), y: series.y,
      visible: hidden.has(series.name) ? false : true,
      hoverinfo: series.quiet && !series.hover.length ? "skip" : "text",
      hovertext: series.hover.map(words),
    };
    if (series.low.length) {
      out.error_y = {
        type: "data", symmetric: false, color: series.mark === "bars" ? style("--ink") : paint, thickness: 1.3, width: 4,
        array: series.y.map((y, i) => series.high[i] - y), arrayminus: series.y.map((y, i) => y - series.low[i]),
      };
    }
    if (series.mark === "bars") return { ...out, type: "bar", marker: { color: paint, line: { color: style("--card"), width: 1 } } };
    out.type = "scatter";
    out.mode = { points: "markers", line: "lines", both: "lines+markers" }[series.mark];
    out.marker = { color: paint, size: 9, symbol: SYMBOLS[series.slot % 8], line: { color: style("--card"), width: 1 } };
    out.line = { color: paint, width: series.quiet ? 1.2 : 2, dash: series.quiet ? "dot" : DASHES[series.slot % 8] };
    return out;
  };

  const SUFFIXES = { byte: "B", "J/token": "J", "s/token": "s", ratio: "x", s: "s", J: "J", W: "W" };
  const tidy = (value) => String(Number(value.toPrecision(6)));
  const pretty = (value, unit) => {
    if (unit === "byte") {
      const step = Math.max(0, Math.min(4, Math.floor(Math.log2(Math.max(value, 1)) / 10)));
      return `${tidy(value / 2 ** (10 * step))} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
    }
    if (unit === "token" && value < 10000) return String(Math.round(value));
    if (unit === "%") return `${tidy(value)} %`;
    const suffix = SUFFIXES[unit] ?? "";
    if (unit === "ratio" || unit === "bit/byte" || value === 0) return tidy(value) + (value === 0 ? "" : suffix);
    const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "\u00b5"], [1e-9, "n"]];
    const [factor, prefix] = prefixes.find(([f]) => Math.abs(value) >= f * 0.9995) ?? [1, ""];
    return `${tidy(value / factor)} ${prefix}${suffix}`.trim();
  };
  const logTicks = (spec, values, marked) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    if (spec.unit === "token") return [...new Set(marked)].slice(0, 14);
    let ticks = [];
    if (spec.unit === "byte") {
      const step = Math.max(1, Math.ceil(Math.log2(high / low) / 6));
      for (let e = Math.floor(Math.log2(low)); e <= Math.ceil(Math.log2(high)); e += step) ticks.push(2 ** e);
      return ticks;
    }
    const decades = Math.log10(high / low);
    const heads = decades > 4 ? [1] : decades > 1.2 ? [1, 2, 5] : decades > 0.5 ? [1, 1.5, 2, 3, 4, 5, 7] : [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += 1) heads.forEach((h) => ticks.push(h * 10 ** e));
    ticks = ticks.filter((tick) => tick > low / 1.2 && tick < high * 1.2);
    while (ticks.length > (narrow() ? 5 : 8)) ticks = ticks.filter((_, i) => i % 2 === 0);
    return ticks;
  };
  const linearTicks = (spec, values) => {
    const low = spec.zero ? Math.min(0, ...values) : Math.min(...values);
    const high = Math.max(...values);
    const raw = (high - low || Math.abs(high) || 1) / (narrow() ? 3.5 : 5.5);
    const base = spec.unit === "byte" ? 2 ** Math.floor(Math.log2(raw)) : 10 ** Math.floor(Math.log10(raw));
    const step = spec.unit === "byte" ? 2 * base : base * [1, 2, 2.5, 5, 10].find((m) => m * base >= raw);
    const ticks = [];
    for (let k = Math.floor(low / step); k <= Math.ceil(high / step) + 1; k += 1) ticks.push(k * step);
    return ticks;
  };
  const axis = (spec, values, marked) => {
    const out = {
      title: { text: words(spec.title), font: { size: 12.5, color: style("--soft") }, standoff: 10 },
      type: typeof values[0] === "string" ? "category" : spec.log ? "log" : "linear",
      gridcolor: style("--line"), linecolor: style("--line"), zerolinecolor: style("--line"),
      tickcolor: style("--line"), automargin: true, rangemode: spec.zero ? "tozero" : "normal",
    };
    if (out.type === "category") return { ...out, tickangle: narrow() ? -60 : "auto", showgrid: false, title: { text: "" } };
    const ticks = spec.log ? logTicks(spec, values, marked) : linearTicks(spec, values);
    return { ...out, tickmode: "array", tickvals: ticks, ticktext: ticks.map((tick) => pretty(tick, spec.unit)) };
  };

  const bandShapes = (view) => view.bands.map((band, i) => ({
    type: "rect", xref: "x", yref: "paper", x0: band.begin, x1: band.end, y0: 0, y1: 1, layer: "below",
    fillcolor: style("--soft"), opacity: i % 2 ? 0.16 : 0.07, line: { width: 0 },
  }));
  const bandNames = (view) => {
    const whole = view.bands.length ? view.bands[view.bands.length - 1].end - view.bands[0].begin : 1;
    return view.bands.filter((band) => band.end - band.begin > whole * (narrow() ? 0.1 : 0.03)).map((band) => ({
      xref: "x", yref: "paper", x: (band.begin + band.end) / 2, y: 0.02, yanchor: "bottom", textangle: -90, showarrow: false,
      text: words(band.name), font: { size: 11, color: style("--soft") },
    }));
  };
  const layout = (view) => {
    const all = (name) => view.series.flatMap((s) => [...s[name], ...(name === "y" ? [...s.low, ...s.high] : [])]);
    const loud = view.series.filter((s) => !s.quiet);
    const stacks = () => loud[0].x.map((_, i) => loud.reduce((sum, s) => sum + (s.y[i] ?? 0), 0));
    const heights = view.stacked && loud.length ? [0, ...stacks()] : all("y");
    return {
      xaxis: axis(view.x, all("x"), loud.flatMap((s) => s.x)), yaxis: axis(view.y, heights, loud.flatMap((s) => s.y)),
      shapes: bandShapes(view), annotations: bandNames(view),
      barmode: view.stacked ? "stack" : "group", bargap: 0.35, showlegend: false, hovermode: "closest",
      margin: { l: 10, r: 12, t: 12, b: 10 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: style("--ink") },
      hoverlabel: { bgcolor: style("--card"), bordercolor: style("--soft"), font: { color: style("--ink"), size: 13 }, align: "left" },
    };
  };
  const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false, plotlyServerURL: "" };

  const state = new Map();
  // the drawing library is most of the page: it is run when the first figure comes into view
  const library = () => {
    const text = document.querySelector("script[data-library]");
    if (!text) return;
    const script = document.createElement("script");
    script.textContent = text.textContent;
    text.remove();
    document.head.append(script);
  };
  const draw = (holder) => {
    library();
    const own = state.get(holder);
    const view = own.figure.views[own.view];
    own.drawn = true;
    return Plotly.react(holder.querySelector(".plot"), view.series.map((s) => trace(s, own.hidden)), layout(view), CONFIG);
  };
  const legend = (holder) => {
    const own = state.get(holder);
    const list = holder.querySelector(".series");
    list.replaceChildren();
    const loud = own.figure.views[own.view].series.filter((s) => !s.quiet);
    const named = [...new Map(loud.map((s) => [s.name, s])).values()]; // parts of one line share its name
    if (named.length < 2) return;
    named.forEach((series) => {
      const button = document.createElement("button");
      const swatch = document.createElement("i");
      swatch.style.color = `var(--c${series.slot % 8})`;
      swatch.textContent = series.mark === "bars" ? "\u25a0" : series.mark === "line" ? "" : GLYPHS[series.slot % 8];
      if (series.mark === "line") swatch.append(stroke(series.slot % 8));
      button.type = "button";
      button.setAttribute("aria-pressed", String(!own.hidden.has(series.name)));
      const name = document.createElement("span");
      name.textContent = series.name;
      swatch.setAttribute("aria-hidden", "true");
      button.append(swatch, name);
      button.addEventListener("click", () => {
        own.hidden.has(series.name) ? own.hidden.delete(series.name) : own.hidden.add(series.name);
        button.setAttribute("aria-pressed", String(!own.hidden.has(series.name)));
        draw(holder);
      });
      list.append(button);
    });
  };
  document.querySelectorAll("figure[data-figure]").forEach((holder) => {
    const figure = figures[Number(holder.dataset.figure)];
    state.set(holder, { figure, view: 0, hidden: new Set(), drawn: false });
    legend(holder);
    const choices = [...holder.querySelectorAll(".choices button")];
    choices.forEach((button, view) => button.addEventListener("click", () => {
      choices.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      state.get(holder).view = view;
      legend(holder);
      draw(holder);
    }));
  });

  const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    watcher.unobserve(entry.target);
    if (!state.get(entry.target).drawn) draw(entry.target);
  }), { rootMargin: "400px" });
  state.forEach((_, holder) => watcher.observe(holder));

  const again = () => state.forEach((own, holder) => { if (own.drawn) draw(holder); });

  // --- theme, print ------------------------------------------------------------------------------------------------
  const theme = document.querySelector(".theme");
  const THEMES = ["auto", "light", "dark"];
  theme.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    theme.textContent = `theme: ${next}`;
    again();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  const PRINT_WIDTH = 960, PRINT_HEIGHT = 380;
  const folded = () => document.querySelectorAll("section > details");
  addEventListener("beforeprint", () => {
    folded().forEach((part) => { part.dataset.open = part.open; part.open = true; });
    document.documentElement.dataset.before = document.documentElement.dataset.theme || "";
    document.documentElement.dataset.theme = "light";
    state.forEach((own, holder) => {
      draw(holder);
      Plotly.relayout(holder.querySelector(".plot"), { width: PRINT_WIDTH, height: PRINT_HEIGHT });
    });
  });
  addEventListener("afterprint", () => {
    folded().forEach((part) => { part.open = part.dataset.open === "true"; });
    const before = document.documentElement.dataset.before;
    if (before) document.documentElement.dataset.theme = before;
    else delete document.documentElement.dataset.theme;
    state.forEach((_, holder) => Plotly.relayout(holder.querySelector(".plot"), { width: null, height: null, autosize: true }));
    again();
  });
})();
