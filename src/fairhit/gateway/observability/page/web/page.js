// Draws the samples of /dashboard/data, once a second.
const SVG = 'http://www.w3.org/2000/svg';
const KEPT_S = 610;
const COLOURS = 12;
const state = {
  samples: [], startedMs: null, seconds: 300, key: sessionStorage.getItem('fairhit-key'), colours: new Map(),
  failed: 0, hover: new Map(),
};
const $ = (id) => document.getElementById(id);
const [SERVICE, EXTEND, CACHED, , WAITING, IN_FLIGHT] = [0, 1, 2, 3, 4, 5];

// -- numbers as text

const short = (value) => {
  if (value === null || value === undefined) return '–';
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(size >= 1e7 ? 0 : 1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(0)}k`;
  if (size >= 1e3) return `${(value / 1e3).toFixed(1)}k`;
  return size >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
};
const percent = (value) => (value === null ? '–' : `${(100 * value).toFixed(0)} %`);
const clock = (time) => new Date(time * 1000).toLocaleTimeString([], { hour12: false });

// -- elements

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function draw(name, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}

// A client keeps its colour; a new client gets a colour that no shown client has.
function colourOf(name, shown) {
  if (name === null) return 'var(--other)';
  if (!state.colours.has(name)) {
    const taken = new Set(shown.map((other) => state.colours.get(other)));
    const free = [...Array(COLOURS).keys()].find((each) => !taken.has(each));
    state.colours.set(name, free ?? state.colours.size % COLOURS);
  }
  return `var(--c${state.colours.get(name)})`;
}

function chip(colour) {
  const element = make('span', { class: 'chip' });
  element.style.background = colour;
  return element;
}

// -- the data as curves

function shownSamples() {
  const last = state.samples.at(-1);
  return last ? state.samples.filter((each) => each.t > last.t - state.seconds) : [];
}

// Clients with a name in any sample shown, most served first; null stands for all others.
function clientsOf(samples) {
  const sums = new Map();
  let others = false;
  for (const sample of samples) {
    for (const [name, row] of Object.entries(sample.clients)) {
      sums.set(name, (sums.get(name) ?? 0) + row[SERVICE] + row[WAITING]);
    }
    others ||= sample.other !== null;
  }
  const names = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a) || (a < b ? -1 : 1));
  const shown = names.slice(0, COLOURS);
  return { shown, folded: new Set(names.slice(COLOURS)), others: others || names.length > COLOURS };
}

function rowOf(sample, name, folded) {
  if (name !== null) return sample.clients[name] ?? [0, 0, 0, 0, 0, 0];
  const sum = [...(sample.other ?? [0, 0, 0, 0, 0, 0])];
  for (const other of folded) (sample.clients[other] ?? []).forEach((each, at) => { sum[at] += each; });
  return sum;
}

// Ratio of sums over the last `width` seconds before each sample.
function smoothed(samples, width, top, bottom) {
  let from = 0; let above = 0; let below = 0;
  const tops = samples.map(top); const bottoms = samples.map(bottom);
  return samples.map((sample, at) => {
    above += tops[at]; below += bottoms[at];
    while (samples[from].t <= sample.t - width) { above -= tops[from]; below -= bottoms[from]; from += 1; }
    return below > 0 ? Math.max(0, above) / below : null;
  });
}

// -- charts: `curves` are {name, colour, values, dashed}; a value per time, null for a gap

function ticksTo(most, count = 4) {
  const rough = most / count; const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, at) => at * step);
}

function path(points, closed = '') {
  let open = false; let text = '';
  for (const [x, y] of points) {
    if (y === null) { open = false; continue; }
    text += `${open ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
    open = true;
  }
  return text + (text ? closed : '');
}

function chart(id, { times, curves, stacked = false, most = null, words, unit = short }) {
  const box = $(id); const width = box.clientWidth; const height = box.clientHeight;
  const left = 44; const bottom = height - 20; const top = 8; const right = width - 4;
  const svg = draw('svg', { role: 'img', 'aria-label': words, viewBox: `0 0 ${width} ${height}` });
  const sums = times.map((_, at) => curves.reduce((sum, each) => sum + (each.values[at] ?? 0), 0));
  const seen = stacked ? sums : curves.flatMap((each) => each.values.filter((one) => one !== null));
  const ticks = ticksTo(most ?? Math.max(1, seen.reduce((a, b) => Math.max(a, b), 0)));
  const highest = ticks.at(-1);
  const end = times.at(-1) ?? 0; const begin = end - state.seconds;
  const x = (time) => left + ((time - begin) / state.seconds) * (right - left);
  const y = (value) => bottom - (value / highest) * (bottom - top);
  for (const tick of ticks) {
    svg.append(draw('line', { class: 'grid', x1: left, x2: right, y1: y(tick), y2: y(tick) }));
    svg.append(draw('text', { x: left - 6, y: y(tick) + 4, 'text-anchor': 'end' }, unit(tick)));
  }
  const steps = right - left < 420 ? 2 : 4;
  for (let step = 0; step <= steps; step += 1) {
    const time = begin + (state.seconds * step) / steps;
    const anchor = step === 0 ? 'start' : step === steps ? 'end' : 'middle';
    svg.append(draw('text', { x: x(time), y: height - 4, 'text-anchor': anchor }, end ? clock(time) : ''));
  }
  const floor = times.map(() => 0);
  for (const curve of curves) {
    const points = times.map((time, at) => [x(time), curve.values[at] === null ? null : y(floor[at] + curve.values[at])]);
    if (stacked) {
      const back = times.map((time, at) => [x(time), y(floor[at])]).reverse();
      const area = times.length > 1 ? path(points) + path(back).replace('M', 'L') + 'Z' : '';
      svg.append(draw('path', { class: 'area', d: area, fill: curve.colour, 'data-name': curve.name }));
      curve.values.forEach((value, at) => { floor[at] += value ?? 0; });
    } else {
      const attributes = { class: curve.dashed ? 'bound' : 'curve', d: path(points), 'data-name': curve.name };
      svg.append(draw('path', curve.dashed ? attributes : { ...attributes, stroke: curve.colour }));
    }
  }
  // An area of zeros is invisible, a line is not.
  if (!curves.some((curve) => curve.values.some((value) => (stacked ? value : value !== null)))) {
    const middle = { class: 'empty', x: (left + right) / 2, y: (top + bottom) / 2, 'text-anchor': 'middle' };
    svg.append(draw('text', middle, 'no data in this time'));
  }
  box.replaceChildren(svg);
  if (state.hover.has(id)) point(box, svg, { times, curves, stacked, unit, x, top, bottom, begin, left, right });
}

// Values under the pointer, redrawn with each sample.
function point(box, svg, { times, curves, stacked, unit, x, top, bottom, begin, left, right }) {
  const pointer = state.hover.get(box.id);
  const time = begin + ((pointer - left) / (right - left)) * state.seconds;
  const at = times.reduce((best, each, index) => (Math.abs(each - time) < Math.abs(times[best] - time) ? index : best), 0);
  if (!times.length) return;
  const here = x(times[at]);
  svg.append(draw('line', { class: 'cursor', x1: here, x2: here, y1: top, y2: bottom }));
  const rows = (stacked ? [...curves].reverse() : curves).filter((curve) => curve.values[at]).map((curve) => {
    const value = make('b', {}, unit(curve.values[at]));
    return make('div', {}, chip(curve.dashed ? 'var(--bound)' : curve.colour), curve.name, value);
  });
  const tip = make('div', { class: 'tip' }, make('div', {}, clock(times[at])), ...rows.slice(0, 14));
  if (here > box.clientWidth / 2) tip.style.right = `${box.clientWidth - here + 10}px`;
  else tip.style.left = `${here + 10}px`;
  box.append(tip);
}

// -- tables

function bar(share, text, colour) {
  const svg = draw('svg', { 'aria-hidden': 'true', preserveAspectRatio: 'none', viewBox: '0 0 100 8' });
  svg.append(draw('rect', { width: 100 * Math.min(1, share), height: 8, fill: colour }));
  return make('div', { class: 'bar' }, svg, make('b', {}, text));
}

function cells(...contents) {
  return contents.map((each) => (each instanceof HTMLTableCellElement ? each : make('td', {}, each)));
}

const pill = (text, kind) => make('span', { class: `pill ${kind}` }, text);

function clientRows(samples, names, folded) {
  const last = samples.at(-1); const minute = samples.filter((each) => each.t > last.t - 60);
  const seconds = minute.reduce((sum, each) => sum + each.s, 0);
  const sums = names.map((name) => minute.map((each) => rowOf(each, name, folded))
    .reduce((sum, row) => sum.map((value, at) => value + row[at]), [0, 0, 0, 0, 0, 0]));
  const all = sums.reduce((sum, row) => sum + row[SERVICE], 0);
  return names.map((name, at) => {
    const now = rowOf(last, name, folded); const sum = sums[at]; const prompt = sum[EXTEND] + sum[CACHED];
    const colour = colourOf(name, names); const title = name ?? 'all others';
    const [charge, engineTime] = (last.consumed ?? {})[name] ?? [null, null];
    return make('tr', { 'data-client': title }, ...cells(
      make('td', { class: 'name', title }, chip(colour), title),
      make('td', { class: 'share' }, bar(all ? sum[SERVICE] / all : 0, percent(all ? sum[SERVICE] / all : 0), colour)),
      short(seconds ? sum[SERVICE] / seconds : 0), percent((last.entitled ?? {})[name] ?? null), short(now[WAITING]), short(now[IN_FLIGHT]),
      percent(prompt ? sum[CACHED] / prompt : null), percent(charge), percent(engineTime),
    ));
  });
}

function workerRows(workers) {
  return Object.entries(workers).map(([url, each], at) => {
    const closed = each.circuit === 'closed';
    const limit = each.limit === null ? short(each.in_flight) : `${each.in_flight} / ${each.limit}`;
    return make('tr', { 'data-worker': url }, ...cells(
      make('td', { class: 'name', title: url }, chip(`var(--c${at % COLOURS})`), url.replace(/^https?:\/\//, '')),
      pill(each.state, { up: 'good', draining: 'warn', down: 'bad' }[each.state]),
      pill(each.circuit, closed ? 'good' : each.circuit === 'open' ? 'bad' : 'warn'),
      make('td', { class: 'share' }, bar(each.limit ? each.in_flight / each.limit : 0, limit, `var(--c${at % COLOURS})`)),
      short(each.in_flight_tokens),
    ));
  });
}

// -- the page

function tiles(samples) {
  const last = samples.at(-1); const rows = [...Object.values(last.clients), ...(last.other ? [last.other] : [])];
  const minute = samples.filter((each) => each.t > last.t - 60);
  const recent = minute.filter((each) => each.t > last.t - 5);
  const all = (sample) => [...Object.values(sample.clients), ...(sample.other ? [sample.other] : [])];
  const total = (those, at) => those.reduce((sum, each) => sum + all(each).reduce((part, row) => part + row[at], 0), 0);
  const seconds = recent.reduce((sum, each) => sum + each.s, 0);
  $('rate').textContent = short(seconds ? total(recent, SERVICE) / seconds : 0);
  $('waiting').textContent = short(last.waiting);
  $('in-flight').textContent = `in the gateway; ${short(rows.reduce((sum, row) => sum + row[IN_FLIGHT], 0))} in flight in all`;
  const prompt = total(minute, EXTEND) + total(minute, CACHED);
  $('hits').textContent = percent(prompt ? total(minute, CACHED) / prompt : null);
  const gap = last.gap; const bounded = gap && gap.bound;
  $('gap').textContent = bounded ? percent(gap.tokens / gap.bound) : gap ? short(gap.tokens) : '–';
  $('gap').className = bounded ? (gap.tokens <= gap.bound ? 'good' : 'bad') : '';
  $('gap-words').textContent = !gap ? 'no two clients wait'
    : bounded ? `of the bound: ${short(gap.tokens)} of ${short(gap.bound)} tokens` : 'tokens; no bound is known';
}

function render() {
  const samples = shownSamples();
  if (!samples.length) return;
  const last = samples.at(-1); const times = samples.map((each) => each.t);
  const { shown, folded, others } = clientsOf(samples);
  const names = [...shown, ...(others ? [null] : [])];
  const curvesOf = (at, width) => [...names].reverse().map((name) => ({
    name: name ?? 'all others', colour: colourOf(name, names),
    values: width ? smoothed(samples, width, (each) => rowOf(each, name, folded)[at], (each) => each.s)
      : samples.map((each) => rowOf(each, name, folded)[at]),
  }));
  tiles(samples);
  const rows = clientRows(samples, names, folded);
  $('clients').tBodies[0].replaceChildren(...rows);
  $('workers').tBodies[0].replaceChildren(...workerRows(last.workers));
  const leading = shown[0] ? `; the most served is ${shown[0]}` : '';
  chart('service', { times, curves: curvesOf(SERVICE, 5), stacked: true, words: `Service of ${names.length} clients over time${leading}` });
  chart('queues', { times, curves: curvesOf(WAITING, 0), stacked: true, words: `Requests waiting in the gateway by client; now ${last.waiting}` });
  const gaps = samples.map((each) => (each.gap ? each.gap.tokens : null));
  const bounds = samples.map((each) => (each.gap ? each.gap.bound : null));
  chart('fairness', {
    times, words: `Worst service gap of two clients that wait, and its bound; now ${last.gap ? `${last.gap.tokens} tokens` : 'none'}`,
    curves: [{ name: 'bound', colour: 'var(--bound)', values: bounds, dashed: true }, { name: 'worst gap', colour: 'var(--c0)', values: gaps }],
  });
  const sum = (sample, at) => names.reduce((part, name) => part + rowOf(sample, name, folded)[at], 0);
  const hits = smoothed(samples, 15, (each) => sum(each, CACHED), (each) => sum(each, CACHED) + sum(each, EXTEND));
  chart('locality', { times, curves: [{ name: 'hit rate', colour: 'var(--c2)', values: hits }], most: 1, unit: percent, words: `Prefix hit rate; now ${percent(hits.at(-1))}` });
  const load = Object.keys(last.workers).slice(0, COLOURS).map((url, at) => ({
    name: url.replace(/^https?:\/\//, ''), colour: `var(--c${at})`, values: samples.map((each) => each.workers[url]?.in_flight_tokens ?? null),
  }));
  chart('in-flight-tokens', { times, curves: load, words: `Estimated tokens in flight at ${load.length} engines` });
  document.body.dataset.drawn = last.n;
}

function receive(data) {
  if (state.startedMs !== data.started_ms) Object.assign(state, { samples: [], startedMs: data.started_ms });
  const after = state.samples.at(-1)?.n ?? 0;
  state.samples.push(...data.samples.filter((each) => each.n > after));
  const last = state.samples.at(-1);
  if (last) state.samples = state.samples.filter((each) => each.t > last.t - KEPT_S);
  $('policy').textContent = data.scheduler ? `${data.scheduler} in the gateway, ${data.policy} across engines` : `${data.policy} across engines`;
  $('bound-words').textContent = data.bound;
}

async function ask() {
  const after = state.samples.at(-1)?.n ?? 0;
  const headers = state.key ? { authorization: `Bearer ${state.key}` } : {};
  const address = (since) => `/dashboard/data?since=${since}`;
  let answer = await fetch(address(after), { headers, cache: 'no-store' });
  if (answer.status === 401 || answer.status === 403) return locked(answer.status);
  if (!answer.ok) throw new Error(`${answer.status}`);
  let data = await answer.json();
  if (after && data.started_ms !== state.startedMs) data = await (answer = await fetch(address(0), { headers, cache: 'no-store' })).json();
  receive(data);
  $('ask').hidden = true;
  document.querySelector('main').hidden = false;
  return true;
}

function locked(status) {
  document.querySelector('main').hidden = true;
  const tried = state.key !== null;
  if (status === 403) $('ask').replaceChildren('No admin key is set: this page is available only on the gateway’s own machine.');
  else $('refused').textContent = tried ? 'Wrong key.' : '';
  $('ask').hidden = false;
  state.key = null;
  return false;
}

async function step() {
  try {
    const open = await ask();
    state.failed = 0;
    $('status').textContent = open ? `live, ${clock(state.samples.at(-1)?.t ?? Date.now() / 1000)}` : 'locked';
    $('status').className = '';
    if (open && !document.hidden) render();
    if (!open) return;
  } catch (error) {
    state.failed += 1;
    $('status').textContent = `the gateway does not answer (${state.failed} attempts)`;
    $('status').className = 'stale';
  }
  setTimeout(step, Math.min(5000, 1000 * (1 + state.failed)));
}

$('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  state.key = $('key').value;
  sessionStorage.setItem('fairhit-key', state.key);
  step();
});
$('spans').addEventListener('click', (event) => {
  if (!event.target.dataset.seconds) return;
  state.seconds = Number(event.target.dataset.seconds);
  for (const each of $('spans').querySelectorAll('button')) each.setAttribute('aria-pressed', each === event.target);
  render();
});
for (const box of document.querySelectorAll('.chart')) {
  box.addEventListener('pointermove', (event) => {
    state.hover.set(box.id, event.clientX - box.getBoundingClientRect().left);
    render();
  });
  box.addEventListener('pointerleave', () => { state.hover.delete(box.id); render(); });
}
addEventListener('resize', render);
document.addEventListener('visibilitychange', render);
step();
