"use strict";
// Draws the channels of a capture, and lets people zoom. The data are in the page; nothing is asked for.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const decode = (text, type) => new type(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer);
  const lanes = data.lanes.map(lane => ({
    ...lane,
    us: decode(lane.us, Float64Array), volts: decode(lane.volts, Float32Array),
    at: decode(lane.at, Float64Array), rising: decode(lane.rising, Uint8Array), used: decode(lane.used, Uint8Array),
  }));
  const canvas = document.getElementById("lanes"), pen = canvas.getContext("2d");
  const readout = document.getElementById("readout");
  const LANE = 118, TOP = 22, LEFT = 58, RIGHT = 10, AXIS = 34;
  const whole = [data.begin, data.end], least = data.interval > 0 ? 4 * data.interval : 1e-3;
  let view = whole.slice(), pointer = null, marks = [], drag = null, asked = false;
  const touches = new Map();
  const stops = [...new Set(lanes.flatMap(lane => [...lane.at].filter((_, i) => lane.used[i])))].sort((a, b) => a - b);
  if (!stops.length) stops.push(...[...new Set(lanes.flatMap(lane => [...lane.at]))].sort((a, b) => a - b));

  const width = () => canvas.clientWidth - LEFT - RIGHT;
  const toX = us => LEFT + (us - view[0]) / (view[1] - view[0]) * width();
  const toUs = x => view[0] + (x - LEFT) / width() * (view[1] - view[0]);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--figure-" + name).trim();
  const first = (list, value) => { // the first place whose value is not below
    let low = 0, high = list.length;
    while (low < high) { const half = (low + high) >> 1; if (list[half] < value) low = half + 1; else high = half; }
    return low;
  };

  function inUnit(us, step) {
    const size = Math.max(Math.abs(view[0]), Math.abs(view[1]));
    const unit = [["ns", 1e3], ["µs", 1], ["ms", 1e-3], ["s", 1e-6]].find(u => size * u[1] < 2e3) || ["s", 1e-6];
    const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step * unit[1] * 0.999))));
    return (us * unit[1]).toFixed(digits).replace("-", "−") + " " + unit[0];
  }
  function short(v, all) { // to a hundredth of what there is
    const digits = Math.max(0, Math.min(6, Math.ceil(2 - Math.log10(all || 1))));
    return (+v.toFixed(digits) || 0).toString().replace("-", "−");
  }
  function span(us) {
    const size = Math.abs(us), sign = us < 0 ? "−" : "";
    const unit = size < 1 ? ["ns", 1e3] : size < 1e3 ? ["µs", 1] : size < 1e6 ? ["ms", 1e-3] : ["s", 1e-6];
    return sign + (size * unit[1]).toPrecision(6) + " " + unit[0];
  }
  function steps(count) {
    const raw = (view[1] - view[0]) / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
    return [1, 2, 5, 10].map(n => n * power).find(step => step >= raw);
  }

  function draw() {
    asked = false;
    const ratio = window.devicePixelRatio || 1, wide = canvas.clientWidth, high = lanes.length * LANE + AXIS;
    canvas.style.height = high + "px";
    canvas.width = wide * ratio; canvas.height = high * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, high);
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
    const step = steps(Math.max(2, width() / 130));
    for (let us = Math.ceil(view[0] / step) * step; us <= view[1]; us += step) {
      line(toX(us), 0, toX(us), high - AXIS, colour("grid"), []);
      text(inUnit(us, step), toX(us), high - AXIS + 15, colour("muted"), "center");
    }
    text(data.origin, wide - RIGHT, high - 4, colour("muted"), "right");
    lanes.forEach(drawLane);
    for (const [from, to] of data.shaded) {
      pen.globalAlpha = 0.55; pen.fillStyle = colour("grid");
      const left = Math.max(toX(from), LEFT), right = Math.min(toX(to), wide - RIGHT);
      if (right > left) pen.fillRect(left, 0, right - left, high - AXIS);
      pen.globalAlpha = 1;
    }
    marks.forEach((us, i) => {
      line(toX(us), 0, toX(us), high - AXIS, colour("ink"), [2, 3]);
      text("AB"[i], toX(us) + 3, 11, colour("ink"), "left");
    });
    if (pointer !== null) line(pointer, 0, pointer, high - AXIS, colour("muted"), []);
    say();
  }
  function drawLane(lane, place) {
    const top = place * LANE + TOP, height = LANE - TOP - 8, ink = colour(lane.ink);
    const [low, most] = lane.range, room = (most - low) * 0.08 || 1;
    const toY = v => top + height * (1 - (v - low + room) / (most - low + 2 * room));
    pen.save();
    pen.beginPath(); pen.rect(LEFT, place * LANE, width(), LANE); pen.clip();
    lane.levels.forEach((v, i) => line(LEFT, toY(v), LEFT + width(), toY(v), colour(i === 1 ? "limit" : "muted"), i === 1 ? [5, 3] : [1, 3]));
    const begin = Math.max(first(lane.us, view[0]) - 1, 0), end = Math.min(first(lane.us, view[1]) + 1, lane.us.length);
    pen.strokeStyle = ink; pen.lineWidth = 1.2; pen.setLineDash([]); pen.beginPath();
    let open = false;
    for (let i = begin; i < end; i++) {
      const v = lane.volts[i];
      if (Number.isNaN(v)) { open = false; continue; }
      if (open) pen.lineTo(toX(lane.us[i]), toY(v)); else pen.moveTo(toX(lane.us[i]), toY(v));
      open = true;
    }
    pen.stroke();
    if (lane.interval > 0 && width() / (view[1] - view[0]) * lane.interval > 5) {
      pen.fillStyle = ink;
      for (let i = begin; i < end; i++) { pen.beginPath(); pen.arc(toX(lane.us[i]), toY(lane.volts[i]), 2, 0, 7); pen.fill(); }
    }
    const from = first(lane.at, view[0]), to = first(lane.at, view[1]);
    const every = Math.max(1, Math.ceil((to - from) / 4000));
    if (lane.levels.length) for (let i = from; i < to; i += every) {
      const x = toX(lane.at[i]), y = toY(lane.levels[1]), size = lane.used[i] ? 6 : 4, up = lane.rising[i] ? 1 : -1;
      pen.beginPath(); pen.moveTo(x, y - up * size); pen.lineTo(x - size, y + up * size); pen.lineTo(x + size, y + up * size); pen.closePath();
      pen.fillStyle = lane.used[i] ? ink : colour("paper"); pen.fill();
      pen.strokeStyle = ink; pen.lineWidth = 1; pen.stroke();
    }
    pen.restore();
    for (const v of lane.levels.length ? [lane.levels[0], lane.levels[2]] : lane.range) text(short(v, most - low) + (lane.unit ? " " + lane.unit : ""), LEFT - 5, toY(v) + 4, colour("muted"), "right");
    const thinned = lane.interval > 0 && end - begin > 2 && end - begin < 400 && (lane.us[end - 1] - lane.us[begin]) / (end - begin - 1) > 1.5 * lane.interval;
    text(lane.label + (thinned ? "  (here only the lowest and highest of several samples)" : ""), LEFT, place * LANE + 14, ink, "left");
  }
  function line(x0, y0, x1, y1, ink, dashes) {
    pen.strokeStyle = ink; pen.lineWidth = 1; pen.setLineDash(dashes);
    pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, y1); pen.stroke(); pen.setLineDash([]);
  }
  function text(words, x, y, ink, align) { pen.fillStyle = ink; pen.textAlign = align; pen.fillText(words, x, y); }
  function say() {
    const parts = [];
    if (pointer !== null) {
      const us = toUs(pointer);
      parts.push(inUnit(us, (view[1] - view[0]) / 1000) + ":");
      for (const lane of lanes) {
        const i = Math.min(first(lane.us, us), lane.us.length - 1);
        if (lane.unit && i >= 0) parts.push(lane.name + " " + lane.volts[i].toPrecision(3) + " V");
      }
    }
    if (marks.length === 2) parts.push("B − A = " + span(marks[1] - marks[0]));
    readout.textContent = parts.join("  ") || "Showing " + span(view[1] - view[0]) + " of " + span(whole[1] - whole[0]) + ".";
  }
  function ask() { if (!asked) { asked = true; requestAnimationFrame(draw); } }
  function show(from, to) {
    const all = whole[1] - whole[0];
    let size = Math.min(Math.max(to - from, least), all * 1.02);
    from = (from + to - size) / 2;
    from = Math.max(whole[0] - all * 0.01, Math.min(from, whole[1] + all * 0.01 - size));
    view = [from, from + size];
    ask();
  }
  function zoom(factor, at) {
    const us = at === undefined ? (view[0] + view[1]) / 2 : at;
    show(us - (us - view[0]) * factor, us + (view[1] - us) * factor);
  }
  function pan(share) { const by = (view[1] - view[0]) * share; show(view[0] + by, view[1] + by); }
  function edge(direction) {
    if (!stops.length) return;
    const middle = (view[0] + view[1]) / 2, near = (view[1] - view[0]) * 1e-6 + 1e-9;
    const found = direction > 0 ? stops.find(us => us > middle + near) : [...stops].reverse().find(us => us < middle - near);
    const us = found === undefined ? (direction > 0 ? stops[stops.length - 1] : stops[0]) : found;
    const size = Math.min(view[1] - view[0], data.near);
    show(us - size / 2, us + size / 2);
  }
  const actions = { whole: () => show(...whole), closer: () => zoom(0.5), wider: () => zoom(2), before: () => edge(-1), next: () => edge(1) };
  for (const [name, action] of Object.entries(actions)) document.getElementById(name).addEventListener("click", action);
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width());
    else zoom(Math.pow(1.0015, event.deltaY), toUs(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    touches.set(event.pointerId, event.offsetX);
    drag = { x: event.offsetX, view: view.slice(), moved: false };
  });
  canvas.addEventListener("pointermove", event => {
    pointer = event.offsetX < LEFT ? null : event.offsetX;
    if (touches.has(event.pointerId)) {
      const before = [...touches.values()];
      touches.set(event.pointerId, event.offsetX);
      const now = [...touches.values()];
      if (now.length === 2) {
        const size = Math.abs(before[0] - before[1]) / Math.max(Math.abs(now[0] - now[1]), 1);
        drag.moved = true;
        zoom(size, toUs((now[0] + now[1]) / 2));
      } else if (now.length === 1 && drag && Math.abs(event.offsetX - drag.x) > 3) {
        drag.moved = true;
        const by = (drag.x - event.offsetX) / width() * (drag.view[1] - drag.view[0]);
        show(drag.view[0] + by, drag.view[1] + by);
      }
    }
    ask();
  });
  const release = event => {
    if (drag && !drag.moved && event.type === "pointerup" && event.offsetX >= LEFT) {
      marks = marks.length === 2 ? [toUs(event.offsetX)] : [...marks, toUs(event.offsetX)];
    }
    touches.delete(event.pointerId);
    drag = null;
    ask();
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { pointer = null; ask(); });
  canvas.addEventListener("dblclick", () => { marks = []; show(...whole); });
  canvas.addEventListener("keydown", event => {
    const keys = { "+": actions.closer, "=": actions.closer, "-": actions.wider, "0": actions.whole, n: actions.next, p: actions.before,
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), ArrowUp: actions.closer, ArrowDown: actions.wider };
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); }
  });
  window.addEventListener("resize", ask);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
  matchMedia("print").addEventListener("change", draw);
  draw();
})();
