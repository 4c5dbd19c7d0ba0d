"use strict";
(() => {
  const by = id => document.getElementById(id);
  // All texts come from the model: they are only ever set as text, never as HTML.
  const make = (tag, text, className) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  // Entries of objects in their order; numbers as names would be moved to the front by JSON.parse.
  const [type, model] = Object.entries(JSON.parse(by("data").textContent))[0];
  const report = model.report;

  const scaled = (value, units, whole) => {
    if (typeof value !== "number") return String(value);
    let unit = 0;
    for (; Math.abs(value) >= 999.5 && unit + 1 < units.length; ++unit) value /= 1000;
    const size = Math.abs(value);
    const digits = (whole && unit === 0) || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    return value.toFixed(digits) + (units[unit] ? "\u00a0" + units[unit] : "");
  };
  const amount = n => scaled(n, ["", "k", "M", "G", "T", "P", "E"], true);
  const size = n => scaled(n, ["B", "kB", "MB", "GB", "TB", "PB"], true);
  const time = s => scaled(typeof s === "number" ? s * 1e9 : s, ["ns", "µs", "ms", "s"], true);
  const exact = n => n.toLocaleString("en");
  const counted = (n, word) => exact(n) + " " + word + (n === 1 ? "" : "s");
  const plain = n => typeof n === "number" ? String(Number(n.toPrecision(3))) : String(n);
  const shape = sizes => sizes.length ? sizes.map(n => n < 0 ? "?" : n).join("×") : "scalar";
  const place = path => path || "the model itself";
  const values = v => [v.nan ? exact(v.nan) + " NaN" : "", v.inf ? exact(v.inf) + " Inf" : "",
    v.intended_inf ? exact(v.intended_inf) + " intended Inf" : ""].filter(Boolean).join(" and ");

  // The tree, flattened once; `order` is that of the model.
  const nodes = [];
  const read = (name, part, parent, order) => {
    const node = {name, info: part.info, parent, depth: parent ? parent.depth + 1 : 0, children: [], open: false, index: nodes.length};
    nodes.push(node);
    for (const key of order(part)) node.children.push(read(key, part.children[key], node, order));
    return node;
  };
  const keysOf = part => part.order || Object.keys(part.children);
  const root = read("", model, null, keysOf);

  const number = x => typeof x === "number" && isFinite(x) ? x : 0;
  const timed = (info, times) => times.calls > 0 || (info.summed && times.total_seconds > 0);
  const seconds = (node, way) => {
    const times = node.info[way][by("own").checked ? "self" : "inclusive"];
    return timed(node.info, times) ? times.median_seconds : null;
  };
  const ran = node => timed(node.info, node.info.forward.inclusive) || timed(node.info, node.info.backward.inclusive);
  const peak = node => !ran(node) ? null : Math.max(node.info.forward.memory.peak_bytes, node.info.backward.memory.peak_bytes);
  const kept = node => ran(node) ? node.info.forward.memory.kept_bytes : null;
  const columns = [
    {title: "Module", left: true, key: n => n.name, cell: moduleCell},
    {title: "Type", left: true, className: "type", key: n => n.info.type, cell: n => make("span", n.info.type, "dim")},
    {title: "Output", left: true, className: "shape", key: n => n.info.output_bytes.reduce((a, b) => a + b, 0),
      cell: n => {
        const shapes = n.info.output_shapes.map(shape);
        const span = make("span", shapes.length ? shapes[0] + (shapes.length > 1 ? " +" + (shapes.length - 1) : "") : "–");
        span.title = shapes.join(", ");
        return span;
      }},
    {title: "Parameters", key: n => n.info.num_parameters, show: n => n ? exact(n) : "–"},
    {title: "MACs", key: n => n.info.forward.work.macs, show: n => n ? amount(n) : "–", hue: "work"},
    {title: "Forward", key: n => seconds(n, "forward"), show: time, hue: "forward", any: n => timed(n.info, n.info.forward.inclusive)},
    {title: "Backward", key: n => seconds(n, "backward"), show: time, hue: "backward", any: n => timed(n.info, n.info.backward.inclusive)},
    {title: "Peak memory", key: peak, show: size, hue: "memory", about: "The most that was held inside, above what was held when the module was called"},
    {title: "Kept", key: kept, show: size, about: "What is held more when the forward returns than when it was called; negative if it let go of more"},
    {title: "Calls", key: n => n.info.summed ? null : n.info.forward.inclusive.calls, show: exact, any: n => n.info.forward.inclusive.calls > report.repeats},
    {title: "Zeros", key: n => n.info.zero_fraction, show: x => scaled(100 * x, [""], false) + " %"},
    {title: "Gradient norm", key: n => n.info.gradient_norm, show: plain},
  ].filter((column, i) => i < 3 || nodes.some(column.any || (n => column.key(n) !== null && column.key(n) !== 0)));
  const longest = column => nodes.reduce((most, n) => Math.max(most, number(column.key(n))), 0);

  function moduleCell(node) {
    const fragment = document.createDocumentFragment();
    if (!by("flat").checked) {
      const twist = make("button", node.open ? "▼" : "▶", "twist" + (node.children.length ? "" : " none"));
      twist.type = "button";
      twist.style.marginLeft = 16 * node.depth + "px";
      twist.setAttribute("aria-expanded", String(node.open));
      twist.setAttribute("aria-label", (node.open ? "Collapse " : "Expand ") + place(node.info.path));
      twist.onclick = event => {
        event.stopPropagation();
        node.open = !node.open;
        draw();
      };
      fragment.append(twist);
    }
    fragment.append(make("span", by("flat").checked ? place(node.info.path) : node.parent ? node.name : "(root)", "name"));
    if (node.info.summed && ran(node)) {
      const sum = make("span", "Σ", "sum");
      sum.title = "No call of it was seen: its numbers are the sums of the modules inside";
      fragment.append(sum);
    }
    node.info.marks.forEach((mark, i) => {
      const label = make("span", mark, mark === "nonfinite" ? "mark bad" : "mark");
      label.title = node.info.mark_sentences[i] || "";
      fragment.append(label);
    });
    return fragment;
  }
  function cellOf(column, node) {
    const cell = make("td", undefined, (column.left ? "left " : "") + (column.className || ""));
    if (column.cell) {
      cell.append(column.cell(node));
      if (column === columns[0]) cell.title = place(node.info.path);
      return cell;
    }
    const value = column.key(node);
    const text = value === null || value === undefined ? "–" : column.show(value);
    if (!column.hue) {
      cell.textContent = text;
      return cell;
    }
    const bar = make("span", undefined, "bar");
    const most = column.most || 1;
    bar.style.setProperty("--hue", "var(--" + column.hue + ")");
    bar.style.setProperty("--part", 100 * Math.min(number(value) / most, 1) + "%");
    bar.style.setProperty("--least", number(value) > 0 ? "1px" : "0");
    if (number(value)) bar.append(make("i"));
    bar.append(make("b", text));
    cell.append(bar);
    if (!number(value)) return cell;
    cell.title = (100 * number(value) / most).toFixed(1) + " % of " + column.show(most);
    return cell;
  }

  let sorted = null;  // {column, up}
  let search = "";
  let chosen = null;
  const inOrder = list => {
    if (!sorted) return list;
    const {column, up} = sorted;
    const rank = n => column.key(n);
    return [...list].sort((a, b) => {
      let x = rank(a), y = rank(b);
      if (typeof x === "string" && column.left) return (up ? 1 : -1) * x.localeCompare(y, undefined, {numeric: true}) || a.index - b.index;
      // What is not known is last either way; not finite counts as the largest.
      if (x === null || y === null) return (x === null) - (y === null) || a.index - b.index;
      x = typeof x === "number" ? x : Infinity;
      y = typeof y === "number" ? y : Infinity;
      return (x === y ? 0 : (x < y ? -1 : 1) * (up ? 1 : -1)) || a.index - b.index;
    });
  };
  const matches = node => [node.info.path, node.info.type, ...node.info.marks].join(" ").toLowerCase().includes(search);

  function visible() {
    if (by("flat").checked) return inOrder(search ? nodes.filter(matches) : nodes);
    let wanted = null;
    if (search) {
      wanted = new Set();
      for (const node of nodes) if (matches(node)) for (let n = node; n; n = n.parent) wanted.add(n);
    }
    const list = [];
    const walk = node => {
      if (wanted && !wanted.has(node)) return;
      list.push(node);
      if (node.open || wanted) inOrder(node.children).forEach(walk);
    };
    walk(root);
    return list;
  }

  function draw() {
    const shown = visible();
    for (const column of columns) if (column.hue) column.most = longest(column);
    const body = document.createDocumentFragment();
    for (const node of shown) {
      const row = make("tr", undefined, (ran(node) ? "" : "idle") + (search && matches(node) ? " found" : ""));
      for (const column of columns) row.append(cellOf(column, node));
      row.onclick = () => {
        if (String(getSelection())) return;
        chosen = chosen === node ? null : node;
        draw();
      };
      body.append(row);
      if (chosen === node) body.append(details(node));
    }
    by("rows").replaceChildren(body);
    by("shown").textContent = shown.length === nodes.length ? counted(nodes.length, "module") : exact(shown.length) + " of " + counted(nodes.length, "module");
    heads();
  }

  function heads() {
    if (!by("heads").children.length) {
      for (const column of columns) {
        const head = make("th", undefined, [column.left ? "left" : "", column.className || ""].join(" ").trim());
        head.scope = "col";
        const button = make("button", column.title);
        button.type = "button";
        if (column.about) head.title = column.about;
        button.onclick = () => {
          const first = Boolean(column.left);
          if (!sorted || sorted.column !== column) sorted = {column, up: first};
          else if (sorted.up === first) sorted = {column, up: !first};
          else sorted = null;
          draw();
        };
        head.append(button);
        by("heads").append(head);
      }
    }
    columns.forEach((column, i) => by("heads").children[i].setAttribute(
      "aria-sort", sorted && sorted.column === column ? (sorted.up ? "ascending" : "descending") : "none"));
  }

  function details(node) {
    const info = node.info;
    const facts = make("div", undefined, "facts");
    const group = (title, pairs) => {
      pairs = pairs.filter(pair => pair && pair[1] !== "");
      if (!pairs.length) return;
      const part = make("div");
      const list = make("dl");
      part.append(make("h3", title), list);
      for (const [name, text] of pairs) list.append(make("dt", name), make("dd", text));
      facts.append(part);
    };
    const tensors = name => info[name + "_shapes"].map((sizes, i) => [
      info[name + "_names"][i] || String(i),
      shape(sizes) + " " + info[name + "_dtypes"][i] + " on " + info[name + "_devices"][i] + ", " + size(info[name + "_bytes"][i])]);
    group("Module", [["path", place(info.path)], ["also at", info.aliases.join(", ")], ["type", info.type],
      ["parameters", exact(info.num_parameters) + (info.num_learnable_parameters === info.num_parameters ? "" : ", " + exact(info.num_learnable_parameters) + " learnable")],
      ["their bytes", size(info.parameter_bytes)], ["gradients", size(info.gradient_bytes)], ["buffers", size(info.buffer_bytes)],
      ["not finite", values(info.non_finite_parameters)],
      info.zero_fraction !== null && ["zero outputs", scaled(100 * info.zero_fraction, [""], false) + " %"],
      info.gradient_norm !== null && ["gradient norm", plain(info.gradient_norm)],
      info.gradient_ratio !== null && ["to the one before", plain(info.gradient_ratio) + "×"],
      ...info.marks.map((mark, i) => [mark, info.mark_sentences[i] || ""])]);
    for (const [way, title] of [["forward", "Forward"], ["backward", "Backward"]]) {
      const {inclusive, self, memory, work, self_work} = info[way];
      if (!timed(info, inclusive) && !work.operations) continue;
      group(title, [
        ["calls", info.summed ? "none was seen: sums of the modules inside" : exact(inclusive.calls)],
        ["time", time(inclusive.median_seconds) + " median, " + time(inclusive.min_seconds) + " minimum, " + time(inclusive.p90_seconds) + " p90"],
        ["own time", time(self.median_seconds) + " median"],
        ["first call", time(inclusive.first_seconds)],
        ["in all", time(inclusive.total_seconds)],
        ["MACs", work.macs ? amount(work.macs) + ", own " + amount(self_work.macs) : ""],
        ["moved", work.bytes ? size(work.bytes) + (work.macs ? ", " + plain(work.flops / work.bytes) + " FLOPs a byte" : "") : ""],
        ["operations", work.operations ? exact(work.operations) : ""],
        ["memory", size(memory.peak_bytes) + " peak, " + (memory.kept_bytes < 0 ? size(-memory.kept_bytes) + " more freed than kept, " : size(memory.kept_bytes) + " kept, ") + counted(memory.allocations, "allocation")],
        ["not finite in", values(info[way].non_finite_in)], ["not finite out", values(info[way].non_finite_out)]]);
    }
    group("Inputs", tensors("input"));
    group("Outputs", tensors("output"));
    group("Gradients of inputs", tensors("grad_in"));
    group("Gradients of outputs", tensors("grad_out"));
    const row = make("tr", undefined, "detail");
    const cell = make("td");
    cell.colSpan = columns.length;
    cell.append(facts);
    row.append(cell);
    return row;
  }

  function go(path) {
    const node = nodes.find(n => n.info.path === path || n.info.aliases.includes(path));
    if (!node) return;
    search = by("search").value = "";
    for (let n = node.parent; n; n = n.parent) n.open = true;
    chosen = node;
    draw();
    const row = by("rows").querySelector("tr.detail");
    if (row) row.previousSibling.scrollIntoView({block: "center"});
  }
  const link = path => {
    const known = nodes.some(n => n.info.path === path || n.info.aliases.includes(path));
    const element = make(known ? "a" : "span", place(path));
    if (known) {
      element.tabIndex = 0;
      element.setAttribute("role", "button");
      element.onclick = () => go(path);
      element.onkeydown = event => event.key === "Enter" && go(path);
    }
    return element;
  };

  function card(what, value, more, hue) {
    const element = make("div", undefined, "card");
    if (hue) element.style.setProperty("--hue", "var(--" + hue + ")");
    element.append(make("div", what, "what"), make("div", value, "value"), make("div", more, "more"));
    by("cards").append(element);
  }
  function cards() {
    const info = model.info;
    card("Parameters", exact(info.num_parameters),
      (info.num_learnable_parameters === info.num_parameters ? "" : exact(info.num_learnable_parameters) + " learnable, ") + size(info.parameter_bytes), "params");
    for (const [way, title] of [["forward", "Forward"], ["backward", "Backward"]]) {
      const times = info[way].inclusive;
      if (timed(info, times)) {
        const several = (info.summed ? "sum of the modules inside; " : "") +
          (report.repeats > 1 ? time(times.min_seconds) + " minimum, " + time(times.p90_seconds) + " p90, first " + time(times.first_seconds) : "one repeat");
        card(title, time(times.median_seconds), several, way);
      }
    }
    const memory = [["forward", report.forward_memory], ["backward", report.backward_memory]].filter(([, m]) => m.peak_bytes || m.kept_bytes);
    if (memory.length) {
      card("Peak memory", size(Math.max(...memory.map(([, m]) => m.peak_bytes))), memory.map(([way, m]) => m.kept_bytes < 0 ? size(-m.kept_bytes) + " freed in " + way : size(m.kept_bytes) + " kept in " + way).join(", "), "memory");
    }
    const work = info.forward.work;
    if (work.operations) {
      card("MACs", amount(work.macs), (info.summed ? "sum of the modules inside; " : "") + amount(work.flops) + " FLOPs, " + size(work.bytes) + " moved, " + plain(work.flops / Math.max(work.bytes, 1)) + " FLOPs a byte", "work");
    }
  }

  function box(into, kind, title, list, items, fill) {
    if (!items.length) return;
    const element = make("div", undefined, "box " + kind);
    const entries = make(list);
    element.append(make("h2", title), entries);
    for (const item of items) {
      const entry = make("li");
      fill(entry, item);
      entries.append(entry);
    }
    by(into).append(element);
  }
  function findings() {
    const tell = (entry, found) => {
      const several = report.repeats + report.warmup > 1;
      entry.append(make("span", found.role, "role"), " " + found.function + " in ", link(found.module),
        ", " + (found.backward ? "backward" : "forward") + " of call " + (found.call + 1) + (several ? " in repeat " + (found.repeat + 1) : "") +
        (values(found.values) ? ": " + values(found.values) : "") + found.inputs.map(text => "; " + text).join(""));
    };
    const intended = report.findings.filter(found => found.values.intended_inf);
    const alarming = report.findings.filter(found => !found.values.intended_inf);
    const title = report.first_non_finite ? report.first_non_finite[0].toUpperCase() + report.first_non_finite.slice(1) : "Not finite";
    box("findings", "bad", title, "ol", alarming, tell);
    box("rest", "", "Infinities that were written on purpose, as masks and paddings are", "ul", intended, tell);
    const marked = new Map();
    for (const node of nodes) for (const mark of node.info.marks) marked.set(mark, [...(marked.get(mark) || []), node.info.path]);
    box("findings", "warn", "Marked", "ul", [...marked], (entry, [mark, paths]) => {
      entry.append(make("span", mark + ": ", "role"));
      paths.slice(0, 12).forEach((path, i) => entry.append(i ? ", " : "", link(path)));
      if (paths.length > 12) entry.append(" and " + (paths.length - 12) + " more");
    });
    box("rest", "", "Modules that were used without a call: an operation read their parameters", "ul",
      nodes.filter(n => n.info.used_without_call), (entry, node) => entry.append(link(node.info.path)));
    box("rest", "", "Modules whose calls cannot be seen; what they do is said of the module around", "ul",
      nodes.filter(n => n.info.has_forward && !n.info.reachable && n.parent), (entry, node) => entry.append(link(node.info.path)));
    box("rest", "", "Operations that are not counted", "ul", report.not_counted, (entry, one) =>
      entry.append(one.function + " in ", link(one.module), " (" + counted(one.calls, "call") + ")"));
    const notes = [...report.notes];
    for (const way of ["forward", "backward"]) {
      const work = report["outside_" + way];
      if (work.operations) notes.unshift(counted(work.operations, "operation") + " of the " + way + " ran in no module: " + time(report["outside_" + way + "_seconds"]) + ", " + amount(work.macs) + " MACs");
    }
    box("rest", "", "Notes", "ul", notes, (entry, note) => entry.append(note));
  }

  const other = number(report.seconds) - ["forward", "backward"].reduce(
    (sum, way) => sum + number(report["outside_" + way + "_seconds"]) + number(model.info[way].inclusive.total_seconds), number(report.own_seconds));
  document.title = type + " – torchtap report";
  by("model").textContent = type || "Model";
  by("about").textContent = [
    ...model.info.input_shapes.map((sizes, i) => shape(sizes) + " " + model.info.input_dtypes[i] + " on " + model.info.input_devices[i]).slice(0, 3),
    report.repeats ? counted(report.repeats, "repeat") + (report.warmup ? " after " + report.warmup + " to warm up" : "") : ""].filter(Boolean).join("; ");
  by("made").textContent = "Made by torchtap " + report.torchtap +
    (report.seconds ? ". The run took " + time(report.seconds) + "; " + time(report.own_seconds) + " were torchtap's own, and are in no time above" : "") +
    (other > 0.1 * report.seconds ? "; " + time(other) + " passed outside of the modules: in the rest of the program, or while TorchScript compiled the model." : ".");
  cards();
  findings();

  // Open as many levels as stay readable; a model that is a single list shows its entries.
  const most = 60, mostOfList = 400;
  for (let depth = 0, count = 1; ; ++depth) {
    const level = nodes.filter(n => n.depth === depth);
    const before = count;
    count += level.reduce((sum, n) => sum + n.children.length, 0);
    if (!level.length || (count > (before < 6 ? mostOfList : most) && depth > 0)) break;
    for (const node of level) node.open = true;
  }
  by("fold").onclick = () => { nodes.forEach(n => { n.open = false; }); draw(); };
  by("unfold").onclick = () => { nodes.forEach(n => { n.open = true; }); draw(); };
  by("flat").onchange = by("own").onchange = draw;
  by("search").oninput = () => { search = by("search").value.trim().toLowerCase(); draw(); };
  by("theme").onclick = () => {
    const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  };
  draw();
})();
