"use strict";
// A drawing that scrolls in its frame, can be zoomed and searched, and whose scopes collapse. Collapsing changes only heights: the
// layers below move up, so that what stays in sight stays in its place from left to right.

const kept = {
  get(name, otherwise) { try { const found = sessionStorage.getItem(`timely ${name}`); return found === null ? otherwise : JSON.parse(found); } catch { return otherwise; } },
  set(name, value) { try { sessionStorage.setItem(`timely ${name}`, JSON.stringify(value)); } catch { /* a file, or no room: not kept */ } },
};
const SVG = "http://www.w3.org/2000/svg", COLLAPSED = 30, TITLE = 24, STEP = 1.25, SMALL = .05, LARGE = 4, READABLE = .55, MANY = 120;
const drawn = (name, attributes) => { const e = document.createElementNS(SVG, name); for (const key in attributes) e.setAttribute(key, attributes[key]); return e; };
// Texts change in their own nodes: what is selected stays so.
const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

class Drawing {
  static all() {
    const found = [...document.querySelectorAll("svg.timely")].map(svg => new Drawing(svg, document.title));
    const rows = [...document.querySelectorAll("main.picture tbody tr")];
    for (const each of found) each.onsearch = matches => { for (const row of rows) row.hidden = !matches(row.cells[0].textContent); };
    return found;
  }

  constructor(svg, key) {
    this.svg = svg; this.key = key; this.onsearch = () => {}; this.onpick = () => {};
    const shut = kept.get(`collapsed ${key}`, null);
    this.collapsed = new Set(shut || []); this.hits = []; this.hit = -1; this.values = new Map(); this.rates = new Map();
    this.zoomed = kept.get(`zoom ${key}`, null); this.groups = new Map();
    const figure = document.createElement("figure");
    this.canvas = document.createElement("div"); figure.className = "drawing"; this.canvas.className = "canvas"; this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "group");
    this.canvas.setAttribute("aria-label", `drawing of ${svg.getAttribute("aria-label")}: + and - zoom, 0 fits; all operators are in the table`);
    svg.setAttribute("role", "group"); svg.replaceWith(figure);
    figure.append(this.tools(), this.canvas); this.canvas.append(svg);
    this.root = this.parse(svg.querySelector(":scope > g"));
    if (!shut && this.root.operators > MANY) for (const node of this.groups.values()) if (node.button) this.collapsed.add(node.path);
    this.handlers(); this.arrange();
    new ResizeObserver(() => this.apply()).observe(figure);
  }

  tools() {
    const bar = document.createElement("div"); bar.className = "tools";
    const button = (text, label, act) => { const b = document.createElement("button"); b.type = "button"; b.textContent = text; b.title = label; b.setAttribute("aria-label", label); b.onclick = act; bar.append(b); };
    button("fit", "fit the drawing", () => this.fit()); button("−", "zoom out", () => this.zoom(1 / STEP)); button("+", "zoom in", () => this.zoom(STEP));
    if (this.svg.querySelector("g.scope g.scope")) {
      button("collapse", "collapse all scopes", () => this.collapse(true)); button("expand", "expand all scopes", () => this.collapse(false));
    }
    this.input = document.createElement("input"); this.input.type = "search"; this.input.placeholder = "search operators";
    this.input.setAttribute("aria-label", "search operators; Enter goes to the next");
    this.input.value = kept.get(`search ${this.key}`, "");
    this.input.oninput = () => { kept.set(`search ${this.key}`, this.input.value); this.hit = -1; this.mark(); };
    this.input.onkeydown = event => { if (event.key === "Enter") { event.preventDefault(); this.next(event.shiftKey ? -1 : 1); } };
    this.count = document.createElement("span"); this.count.className = "found-count"; this.count.setAttribute("role", "status");
    bar.append(this.input, this.count);
    return bar;
  }

  // What the SVG says of a box, a scope and its streams.
  parse(g) {
    const [x, y] = (g.getAttribute("transform") || "translate(0 0)").match(/-?[\d.]+/g).map(Number), rect = g.querySelector(":scope > rect");
    const node = {g, rect, x, y, width: +rect.getAttribute("width"), height: +rect.getAttribute("height"), path: g.dataset.path, child: g.dataset.child, layer: +g.dataset.layer, scope: g.classList.contains("scope")};
    node.children = [...g.querySelectorAll(":scope > g")].map(child => this.parse(child));
    node.wires = [...g.querySelectorAll(":scope > path")].map(line => {
      const points = [...line.getAttribute("d").matchAll(/([MLC])([^MLC]+)/g)].map(([, kind, rest]) => { const at = rest.match(/-?[\d.]+/g).map(Number); return {kind, x: at.at(-2), y: at.at(-1)}; });
      return {line, points, from: line.dataset.from, to: line.dataset.to, number: +line.dataset.wire};
    });
    node.operators = node.scope ? node.children.reduce((all, child) => all + child.operators, 0) : 1;
    node.title = g.querySelector(":scope > title"); node.hover = node.title ? node.title.textContent : ""; node.live = g.querySelector(":scope > text.live");
    this.groups.set(node.path, node);
    for (const child of node.children) child.around = node;
    if (node.scope && g.parentNode !== this.svg) this.toggle(node);
    return node;
  }

  toggle(node) {
    const text = node.g.querySelector(":scope > text"), button = drawn("g", {class: "toggle", role: "button", tabindex: 0});
    node.name = text.textContent; node.label = text; node.button = button;
    text.replaceWith(button); button.append(drawn("rect", {class: "handle", width: node.width, height: TITLE}), text);
    const act = event => { event.stopPropagation(); event.preventDefault(); if (!this.collapsed.delete(node.path)) this.collapsed.add(node.path); this.arrange(); };
    button.addEventListener("click", act);
    button.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") act(event); });
  }

  collapse(all) {
    this.collapsed = new Set(all ? [...this.groups.values()].filter(node => node.button).map(node => node.path) : []);
    this.arrange();
  }

  arrange() {
    const height = this.place(this.root); this.size = {width: this.root.width + 16, height: height + 16};
    kept.set(`collapsed ${this.key}`, [...this.collapsed]);
    this.apply(); this.paint(this.values); this.flows(this.rates); this.mark();
  }

  // Place the inside of a box; return its height.
  place(node) {
    let height = node.height;
    const shut = node.scope && this.collapsed.has(node.path);
    if (shut) height = COLLAPSED;
    else if (node.scope) height -= this.stack(node);
    if (node.scope) node.g.classList.toggle("collapsed", shut);
    if (node.button) {
      node.button.setAttribute("aria-expanded", String(!shut));
      node.label.textContent = `${shut ? "▸" : "▾"} ${shut ? node.name.split(" (time")[0] : node.name}${shut ? ` · ${node.operators} operator${node.operators === 1 ? "" : "s"}` : ""}`;
    }
    node.rect.setAttribute("height", height); node.now = height;
    return height;
  }

  // Stack the layers of a scope; return by how much they have become lower.
  stack(node) {
    const layers = new Map();
    for (const child of node.children) {
      const now = this.place(child), middle = child.y + child.height / 2, layer = layers.get(child.layer) || {middle, before: 0, now: 0};
      layer.before = Math.max(layer.before, child.height); layer.now = Math.max(layer.now, now); layers.set(child.layer, layer);
    }
    let up = 0;
    const order = [...layers].sort((a, b) => a[0] - b[0]).map(([, layer]) => layer);
    for (const layer of order) { layer.top = layer.middle - layer.before / 2; layer.to = layer.top - up; layer.center = layer.to + layer.now / 2; up += layer.before - layer.now; }
    const move = y => {
      let shift = 0;
      for (const layer of order) {
        if (y < layer.top) break;
        if (y <= layer.top + layer.before) return layer.to + (y - layer.top) * layer.now / layer.before;
        shift += layer.before - layer.now;
      }
      return y - shift;
    };
    const by = new Map(node.children.map(child => [child.child, child]));
    for (const child of node.children) { child.at = layers.get(child.layer).center - child.now / 2; child.g.setAttribute("transform", `translate(${child.x} ${child.at})`); }
    for (const {line, points, from, to} of node.wires) {
      const source = by.get(from), target = by.get(to), last = points.length - 1;
      const ys = points.map((point, i) => i === 0 ? (source ? source.at + source.now : 0) : i === last ? (target ? target.at : node.height - up) : move(point.y));
      line.setAttribute("d", points.map((point, i) => {
        if (i && point.x === points[i - 1].x && Math.abs(ys[i] - ys[i - 1]) < .1) return "";  // a line without length has no direction
        if (point.kind !== "C") return `${point.kind}${point.x},${ys[i]}`;
        const middle = (ys[i - 1] + ys[i]) / 2;
        return `C${points[i - 1].x},${middle} ${point.x},${middle} ${point.x},${ys[i]}`;
      }).join(" "));
    }
    return up;
  }

  // -- looking around --------------------------------------------------------------------------------------------------

  get scale() { return this.zoomed ?? Math.min(1, Math.max(READABLE, this.canvas.clientWidth / this.size.width)); }

  apply() {
    const {width, height} = this.size;
    this.svg.setAttribute("viewBox", `-8 -8 ${width} ${height}`);
    this.svg.style.width = `${width * this.scale}px`; this.svg.style.height = `${height * this.scale}px`;
  }

  fit() { this.zoomed = null; kept.set(`zoom ${this.key}`, null); this.apply(); }

  // Around the middle of what is in sight.
  zoom(factor) {
    const {canvas, scale} = this, by = Math.max(SMALL, Math.min(LARGE, scale * factor)) / scale;
    const place = (from, size) => (from + size / 2) * by - size / 2, [x, y] = [place(canvas.scrollLeft, canvas.clientWidth), place(canvas.scrollTop, canvas.clientHeight)];
    this.zoomed = scale * by; kept.set(`zoom ${this.key}`, this.zoomed); this.apply(); canvas.scrollTo(x, y);
  }

  show(path) {
    const node = this.groups.get(path); if (!node) return;
    for (let around = node.around; around; around = around.around) this.collapsed.delete(around.path);
    this.arrange();
    for (const old of this.svg.querySelectorAll(".picked")) old.classList.remove("picked");
    node.g.classList.add("picked");
    const box = node.rect.getBoundingClientRect(), frame = this.canvas.getBoundingClientRect();
    this.canvas.scrollBy(box.x - frame.x + (box.width - frame.width) / 2, box.y - frame.y + (box.height - frame.height) / 2);
  }

  handlers() {
    this.canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;  // the wheel alone scrolls
      event.preventDefault(); this.zoom(Math.exp(-event.deltaY / 300));
    }, {passive: false});
    this.canvas.addEventListener("click", event => { const box = event.target.closest("g.operator, g.source"); if (box) this.onpick(box.dataset.path); });
    this.canvas.addEventListener("keydown", event => {
      const act = {"+": () => this.zoom(STEP), "=": () => this.zoom(STEP), "-": () => this.zoom(1 / STEP), "0": () => this.fit()}[event.key];
      if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
    });
  }

  // -- searching -------------------------------------------------------------------------------------------------------

  mark() {
    const term = this.input.value.trim().toLowerCase(), matches = path => path.toLowerCase().includes(term);
    this.hits = [];
    for (const node of this.groups.values()) {
      const found = term !== "" && !node.scope && matches(node.path);
      if (found) this.hits.push(node.path);
      if (!node.scope) node.g.classList.toggle("found", found);
    }
    for (const node of this.groups.values()) if (node.scope) node.g.classList.toggle("found", this.collapsed.has(node.path) && this.hits.some(path => path.startsWith(node.path + "/")));
    this.svg.classList.toggle("searching", term !== "");
    const text = term === "" ? "" : `${this.hits.length} of ${this.root.operators}`;
    write(this.count, text);
    this.onsearch(matches);
  }

  next(by) {
    if (!this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length) % this.hits.length; this.show(this.hits[this.hit]);
  }

  // -- what changes while a dataflow runs ------------------------------------------------------------------------------

  // Values by path: {text, heat in 0..1, busy, running, hover}. A collapsed scope shows the hottest of its operators.
  paint(values) {
    this.values = values;
    for (const [path, value] of values) {
      const node = this.groups.get(path); if (!node) continue;
      if (node.live) write(node.live, value.text);
      if (node.title) write(node.title, node.hover + value.hover);
      node.g.style.setProperty("--heat", `${Math.round(45 * Math.sqrt(value.heat))}%`);
      node.g.classList.toggle("busy", value.busy); node.g.classList.toggle("running", value.running);
    }
    for (const node of this.groups.values()) {
      if (!node.button || !this.collapsed.has(node.path)) { if (node.button) node.rect.style.removeProperty("fill"); continue; }
      let heat = 0;
      for (const [path, value] of values) if (path.startsWith(node.path + "/")) heat = Math.max(heat, value.heat);
      node.rect.style.fill = heat > .01 ? `color-mix(in srgb, var(--hot) ${Math.round(100 * heat)}%, var(--accent))` : "";
    }
  }

  // Records per second, by scope and number of the wire: [text, share of the busiest, hover].
  flows(rates) {
    this.rates = rates;
    for (const [path, wires] of rates) {
      const node = this.groups.get(path); if (!node) continue;
      for (const wire of node.wires) {
        const [text, share, hover] = wires[wire.number] || ["", 0, ""];
        if (!wire.label && text) { wire.label = drawn("text", {class: "rate"}); node.g.append(wire.label); }
        if (wire.label) write(wire.label, text);
        if (!wire.tip) { wire.tip = drawn("title"); wire.line.append(wire.tip); }
        write(wire.tip, hover);
        if (wire.label && text) {
          const [x, y] = (wire.line.getAttribute("d").match(/-?[\d.]+,-?[\d.]+/g) || ["0,0"]).at(-1).split(",").map(Number);
          wire.label.setAttribute("x", x + 8); wire.label.setAttribute("y", y - 9);
        }
        wire.line.style.setProperty("--load", (1.3 + 2.7 * share).toFixed(1));
      }
    }
  }
}
