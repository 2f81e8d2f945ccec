"use strict";
// A drawing that can be fitted, zoomed, moved, searched, and whose scopes collapse. Collapsing changes only heights: the layers
// below move up, so that what stays in sight stays in its place from left to right.

const kept = {
  get(name, otherwise) { try { const found = sessionStorage.getItem(`timely ${name}`); return found === null ? otherwise : JSON.parse(found); } catch { return otherwise; } },
  set(name, value) { try { sessionStorage.setItem(`timely ${name}`, JSON.stringify(value)); } catch { /* a file, or no room: not kept */ } },
};
const SVG = "http://www.w3.org/2000/svg", COLLAPSED = 30, TITLE = 24, STEP = 1.25, SMALL = .05, LARGE = 4, READABLE = .55, MANY = 120;
const drawn = (name, attributes) => { const e = document.createElementNS(SVG, name); for (const key in attributes) e.setAttribute(key, attributes[key]); return e; };
// Texts change in their own nodes: what is selected stays so.
const write = (node, text) => {
  if (node.textContent === text) return;
  if (node.childNodes.length === 1 && node.firstChild.nodeType === Node.TEXT_NODE) node.firstChild.data = text; else node.textContent = text;
};

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
    this.collapsed = new Set(shut || []); this.hits = []; this.hit = -1; this.values = new Map(); this.rates = new Map(); this.touched = false;
    this.groups = new Map(); this.figure = document.createElement("figure"); this.figure.className = "drawing";
    this.canvas = document.createElement("div"); this.canvas.className = "canvas"; this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "group");
    this.canvas.setAttribute("aria-label", `drawing of ${svg.getAttribute("aria-label")}: arrows move it, + and - zoom, 0 fits; all operators are in the table`);
    svg.setAttribute("role", "group"); svg.replaceWith(this.figure);
    this.figure.append(this.tools(), this.canvas); this.canvas.append(svg);
    this.root = this.parse(svg.querySelector(":scope > g"));
    if (!shut && this.root.operators > MANY) for (const node of this.groups.values()) if (node.button) this.collapsed.add(node.path);
    this.handlers(); this.arrange(); this.view = kept.get(`view ${key}`, null); this.touched = Boolean(this.view);
    new ResizeObserver(() => this.resize()).observe(this.canvas); this.resize();
  }

  tools() {
    const bar = document.createElement("div"); bar.className = "tools"; bar.setAttribute("role", "group"); bar.setAttribute("aria-label", "drawing");
    const button = (text, label, act) => { const b = document.createElement("button"); b.type = "button"; b.textContent = text; b.title = label; b.setAttribute("aria-label", label); b.onclick = act; bar.append(b); };
    button("fit", "fit the whole drawing", () => this.fit()); button("−", "zoom out", () => this.zoom(1 / STEP)); button("+", "zoom in", () => this.zoom(STEP));
    if (this.svg.querySelector("g.scope g.scope")) {
      button("collapse", "collapse all scopes", () => this.collapse(true)); button("expand", "expand all scopes", () => this.collapse(false));
    }
    const input = document.createElement("input"); input.type = "search"; input.placeholder = "search operators"; input.setAttribute("aria-label", "search operators; Enter goes to the next");
    input.value = kept.get(`search ${this.key}`, ""); input.oninput = () => this.search(input.value);
    input.onkeydown = event => { if (event.key === "Enter") { event.preventDefault(); this.next(event.shiftKey ? -1 : 1); } };
    this.input = input; this.count = document.createElement("span"); this.count.className = "found-count"; this.count.setAttribute("role", "status");
    bar.append(input, this.count);
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
    button.addEventListener("click", event => { if (!this.dragged) act(event); });
    button.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") act(event); });
  }

  collapse(all) {
    this.collapsed = new Set(all ? [...this.groups.values()].filter(node => node.button).map(node => node.path) : []);
    this.arrange(); if (!this.touched) this.start();
  }

  arrange() {
    const height = this.place(this.root); this.size = {width: this.root.width + 16, height: height + 16};
    kept.set(`collapsed ${this.key}`, [...this.collapsed]);
    if (this.view) this.apply();
    this.paint(this.values); this.flows(this.rates); this.mark();
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
      node.label.textContent = `${shut ? "▸" : "▾"} ${shut ? node.name.split("   ")[0] : node.name}${shut ? ` · ${node.operators} operator${node.operators === 1 ? "" : "s"}` : ""}`;
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

  resize() {
    const width = this.canvas.clientWidth; if (!width) return;
    const whole = this.size.height * Math.min(1, width / this.size.width);
    const tall = Math.max(160, Math.min(whole + 4, innerHeight * (innerWidth < 700 ? .55 : .7)));
    if (Math.abs(tall - this.canvas.clientHeight) > 1) this.canvas.style.height = `${tall}px`;
    if (!this.touched || !this.view) this.start(); else this.apply();
  }

  fitting() { return Math.min(1, this.canvas.clientWidth / this.size.width, this.canvas.clientHeight / this.size.height); }
  fit() { this.touched = false; this.center(this.fitting()); this.save(); }

  // At first as much as can be read, from the top.
  start() {
    const scale = this.fitting();
    if (scale >= READABLE) { this.center(scale); return; }
    const readable = Math.min(1, Math.max(READABLE, this.canvas.clientWidth / this.size.width));
    this.center(readable); this.view.y = -8; this.apply();
  }

  center(scale) {
    const width = this.canvas.clientWidth / scale, height = this.canvas.clientHeight / scale;
    this.view = {scale, x: -8 + (this.size.width - width) / 2, y: -8 + (this.size.height - height) / 2}; this.apply();
  }

  apply() {
    const {scale, x, y} = this.view;
    this.svg.setAttribute("viewBox", `${x} ${y} ${Math.max(1, this.canvas.clientWidth) / scale} ${Math.max(1, this.canvas.clientHeight) / scale}`);
  }

  save() { kept.set(`view ${this.key}`, this.touched ? this.view : null); }

  zoom(factor, at) {
    const {scale, x, y} = this.view, next = Math.max(SMALL, Math.min(LARGE, scale * factor)), [px, py] = at || [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    this.view = {scale: next, x: x + px / scale - px / next, y: y + py / scale - py / next}; this.moved();
  }

  pan(dx, dy) { this.view.x -= dx / this.view.scale; this.view.y -= dy / this.view.scale; this.moved(); }
  moved() { this.touched = true; this.apply(); this.save(); }

  show(path) {
    let node = this.groups.get(path); if (!node) return;
    for (let around = node.around; around; around = around.around) this.collapsed.delete(around.path);
    this.arrange();
    for (const old of this.svg.querySelectorAll(".picked")) old.classList.remove("picked");
    node.g.classList.add("picked");
    const scale = Math.max(this.view.scale, .9); let x = node.width / 2, y = node.now / 2;
    for (; node; node = node.around) { x += node.around ? node.x : 0; y += node.around ? node.at : 0; }
    this.view = {scale, x: x - this.canvas.clientWidth / 2 / scale, y: y - this.canvas.clientHeight / 2 / scale}; this.moved();
  }

  handlers() {
    const at = event => { const box = this.canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const down = new Map(); let way = 0, apart = 0;
    this.canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;  // the wheel alone scrolls the page
      event.preventDefault(); this.zoom(Math.exp(-event.deltaY / 300), at(event));
    }, {passive: false});
    this.canvas.addEventListener("pointerdown", event => { if (event.button) return; if (!down.size) { way = 0; this.dragged = false; } down.set(event.pointerId, at(event)); apart = 0; });
    this.canvas.addEventListener("pointermove", event => {
      const before = down.get(event.pointerId); if (!before) return;
      const now = at(event), dx = now[0] - before[0], dy = now[1] - before[1];
      way += Math.abs(dx) + Math.abs(dy);
      if (way < 5) return;
      if (!this.dragged) { this.dragged = true; this.canvas.setPointerCapture(event.pointerId); this.canvas.classList.add("moving"); }
      down.set(event.pointerId, now);
      if (down.size === 2) {
        const [a, b] = [...down.values()], far = Math.hypot(a[0] - b[0], a[1] - b[1]);
        if (apart) this.zoom(far / apart, [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]);
        apart = far;
      } else this.pan(dx, dy);
    });
    const up = event => { down.delete(event.pointerId); apart = 0; if (!down.size) this.canvas.classList.remove("moving"); };
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, up);
    this.canvas.addEventListener("click", event => {
      const box = this.dragged ? null : event.target.closest("g.operator, g.source");
      if (box) this.onpick(box.dataset.path);
    });
    this.canvas.addEventListener("dblclick", event => { if (!event.target.closest(".toggle")) this.zoom(STEP * STEP, at(event)); });
    this.canvas.addEventListener("keydown", event => {
      const act = {ArrowLeft: () => this.pan(60, 0), ArrowRight: () => this.pan(-60, 0), ArrowUp: () => this.pan(0, 60), ArrowDown: () => this.pan(0, -60),
        "+": () => this.zoom(STEP), "=": () => this.zoom(STEP), "-": () => this.zoom(1 / STEP), "0": () => this.fit()}[event.key];
      if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
    });
  }

  // -- searching -------------------------------------------------------------------------------------------------------

  search(text) { kept.set(`search ${this.key}`, text); this.hit = -1; this.mark(); }

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
    if (this.count.textContent !== text) this.count.textContent = text;
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
      this.put(node, "text", value.text, () => { if (node.live) write(node.live, value.text); });
      this.put(node, "hover", value.hover, () => { if (node.title) write(node.title, node.hover + value.hover); });
      this.put(node, "heat", Math.round(45 * Math.sqrt(value.heat)), heat => node.g.style.setProperty("--heat", `${heat}%`));
      node.g.classList.toggle("busy", value.busy); node.g.classList.toggle("running", value.running);
    }
    for (const node of this.groups.values()) {
      if (!node.button || !this.collapsed.has(node.path)) { if (node.button) node.rect.style.removeProperty("fill"); continue; }
      let heat = 0;
      for (const [path, value] of values) if (path.startsWith(node.path + "/")) heat = Math.max(heat, value.heat);
      node.rect.style.fill = heat > .01 ? `color-mix(in srgb, var(--hot) ${Math.round(100 * heat)}%, var(--accent))` : "";
    }
  }

  put(node, name, value, act) { const key = `_${name}`; if (node[key] !== value) { node[key] = value; act(value); } }

  // Records per second, by scope and number of the wire: [text, share of the busiest, hover].
  flows(rates) {
    this.rates = rates;
    for (const [path, wires] of rates) {
      const node = this.groups.get(path); if (!node) continue;
      for (const wire of node.wires) {
        const [text, share, hover] = wires[wire.number] || ["", 0, ""];
        if (wire.text !== text) {
          wire.text = text;
          if (!wire.label && text) { wire.label = drawn("text", {class: "rate"}); node.g.append(wire.label); }
          if (wire.label) write(wire.label, text);
        }
        if (wire.hover !== hover) { wire.hover = hover; if (!wire.tip) { wire.tip = drawn("title"); wire.line.append(wire.tip); } write(wire.tip, hover); }
        if (wire.label && text) {
          const [x, y] = (wire.line.getAttribute("d").match(/-?[\d.]+,-?[\d.]+/g) || ["0,0"]).at(-1).split(",").map(Number);
          wire.label.setAttribute("x", x + 8); wire.label.setAttribute("y", y - 9);
        }
        wire.line.style.setProperty("--load", (1.3 + 2.7 * share).toFixed(1));
      }
    }
  }
}
