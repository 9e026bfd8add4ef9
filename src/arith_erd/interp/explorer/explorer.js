// What one sees and does. The state is in the address; every change runs the networks again and draws everything anew.
// Text from outside enters the page as text only.

const $ = id => document.getElementById(id)
const data = JSON.parse($('data').textContent)
const { task, task: { prompt_names: PROMPT, answer_names: ANSWER } } = data
const POSITIONS = [...ANSWER, ...PROMPT]
const loaded = [] // networks that have been unpacked
let answers, views = [], playing

/** An element with properties of the DOM, such as className, ariaLabel and onclick. */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties)
  made.append(...children)
  return made
}

// --- numbers, tokens and words ---

const many = (count, make) => Array.from({ length: count }, (_, i) => make(i))
const digitsOf = (value, count) => many(count, i => Math.floor(value / task.base ** i) % task.base)
const ordered = (digits, order) => (order === 'reverse' ? digits : [...digits].reverse())
const tokensOf = (value, count, order) => ordered(digitsOf(value, count), order).map(digit => digit + ZERO)
const symbol = token => ['.', 's', task.operator][token] ?? (token - ZERO).toString(16)
const percent = share => `${(100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 0 : 1)}%`
const joined = pair => pair.join(` ${task.operator} `)
const answerOf = pair => answers.data[pair.reduce((index, x, i) => index * task.shape[i] + x, 0)]
const completionOf = pair => tokensOf(answerOf(pair), task.width, task.completion_order)
const isRight = (tokens, pair) => String(tokens) === String(completionOf(pair))
const promptOf = pair => pair.flatMap(x => [2, ...tokensOf(x, task.bits, task.prompt_order)]).slice(1)
const valueOf = tokens => ordered(tokens, task.completion_order)
  .reduce((sum, token, i) => sum + Math.max(token - ZERO, 0) * task.base ** i, 0)

function readNumber(text, i) {
  if (/^\s*\d+\s*$/.test(text) && Number(text) < task.shape[i]) return Number(text)
  const given = `${task.operand_names[i]} = "${text.slice(0, 20)}"`
  throw Error(`${given}: expected a whole number from 0 to ${task.shape[i] - 1}.`)
}

/** What `make` gives; if it refuses, its sentence is shown where it belongs. */
function attempt(where, make, before = '') {
  $(where).textContent = ''
  try {
    return make()
  } catch ({ message }) {
    $(where).textContent = before + message
  }
}

const names = data.networks.map(({ name, seed }) => `${name}, seed ${seed}`)
const shortNames = names.map(name => name.replace(/-seed[^-]*-[0-9a-f]{8}(?=, seed \d+$)/, ''))
const labels = shortNames.map((name, i) => (shortNames.filter(other => other === name).length > 1 ? names[i] : name))

const layerOf = site => site.split('.')[1]
const partOf = site => (site.includes('cross') ? 'cross' : /attn|mid/.test(site) ? 'self' : 'feed')
const siteShort = site => `${site.startsWith('enc') ? 'enc ' : ''}${layerOf(site)} ${partOf(site)}`
const siteWords = site => `${site.startsWith('enc') ? 'encoder' : 'decoder'} layer ${layerOf(site)}, ` +
  { self: 'self-attention', cross: 'cross-attention', feed: 'feed-forward' }[partOf(site)]

function actionWords(action) {
  const [kind, site, position, along, amount] = action.split(':')
  if (kind === 'invert') return `${site} inverted for later positions`
  if (kind === 'exchange') return `${position} after ${siteWords(site)} from ${joined(state.other)}`
  if (kind === 'off') return `${siteWords(site)}${position === undefined ? '' : `, head ${Number(position) + 1}`} off`
  if (kind === 'encoder') return 'all self-attention of the encoder off'
  if (kind === 'tokens') return 'encoder replaced by its vectors'
  return `${position} after ${siteWords(site)} moved by ${amount} ${along === 'carry' ? 'carries' : 'of the answer'}`
}

// --- state and address ---

const example = more => task.shape.map((size, i) => Math.min([27, 100, 1][i] + more, size - 1))
/** What one sees. Actions are texts as in the address, such as `steer:dec.4:r4:carry:-1`. */
let state = {
  pair: example(0), other: example(1), nets: [...new Set([0, data.networks.length - 1])], actions: [],
  shown: task.width, site: undefined, position: ANSWER[Math.floor(task.width / 2)], allHeads: false,
}

/** What can be turned off: `off:enc.1.attn` all heads of a sublayer, `off:enc.1.attn:0` one, `off:enc.1.mlp`. */
function switches({ weights, heads }) {
  const found = weights.shapes.map(([name]) => /^mean\.(.*)\.(z|mlp_out)$/.exec(name)).filter(Boolean)
  return found.flatMap(([, site, what]) =>
    (what === 'z' ? [`off:${site}`, ...many(heads, h => `off:${site}:${h}`)] : [`off:${site}.mlp`]))
}

/** Whether some network of the page has the place. */
function isAction(text) {
  const anywhere = ['encoder', 'tokens', ...ANSWER.map(name => `invert:${name}`), ...data.networks.flatMap(switches)]
  const [kind, site, position, along, amount, ...more] = text.split(':')
  const placed = data.networks.some(net => net.stream.includes(site)) && POSITIONS.includes(position)
  if (kind === 'exchange') return placed && along === undefined
  if (kind !== 'steer') return anywhere.includes(text)
  return placed && ['carry', 'value'].includes(along) && Math.abs(amount) <= task.base ** task.width && !more.length
}

/** The state that an address describes; what it leaves out stays, except interventions. */
function readAddress(hash) {
  const next = { ...state, actions: [] }
  for (const [key, text] of new URLSearchParams(hash.slice(1))) {
    const i = task.operand_names.indexOf(key)
    if (i >= 0) next.pair = next.pair.with(i, readNumber(text, i))
    else if (key === 'from') next.other = task.shape.map((_, j) => readNumber(text.split(',')[j] ?? '', j))
    else if (key === 'do') next.actions = text.split(';').filter(Boolean)
    else if (key === 'net') next.nets = text.split('|').map(name => labels.indexOf(name))
    else if (key === 'shown') next.shown = Math.round(text) || 0
    else throw Error(`"${key.slice(0, 20)}" is no key.`)
    if (next.nets.length > 2 || next.nets.includes(-1)) throw Error(`net: "${text.slice(0, 60)}" is not in this page.`)
  }
  const wrong = next.actions.find(action => !isAction(action))
  if (wrong) throw Error(`do: "${wrong.slice(0, 40)}" is no intervention of these networks.`)
  return next
}

function address() {
  const items = state.pair.map((x, i) => [task.operand_names[i], x])
  items.push(['net', state.nets.map(i => labels[i]).join('|')])
  if (state.actions.length) items.push(['do', state.actions.join(';')])
  if (state.actions.some(action => action.startsWith('exchange'))) items.push(['from', state.other.join(',')])
  if (state.shown < task.width) items.push(['shown', state.shown])
  return `#${new URLSearchParams(items)}`
}

// --- running ---

async function load(i) {
  const config = data.networks[i]
  loaded[i] ??= new { Transformer, NanoGPT }[config.kind](config, await unpack(config.weights))
}

/** The row of x that a position has at a site, or undefined: in a decoder the answer's positions are the last ones. */
function rowOf(x, site, position) {
  const t = ANSWER.indexOf(position), inPrompt = site.startsWith('enc')
  if (t >= 0) return inPrompt ? undefined : x.rows - task.width + t
  return inPrompt || x.rows > task.width ? PROMPT.indexOf(position) : undefined
}

/** An intervention as pairs of a site and a change, f(row, t) in place; none if this network lacks the place. */
function compile({ weights, config }, action, prompt, source) {
  const [kind, site, position, along, amount] = action.split(':')
  const encoder = config.stream.filter(name => /^enc\.\d+$/.test(name))
  if (kind === 'tokens') {
    const vectors = weights[`tokens.${encoder.at(-1)}`]
    return encoder.slice(-1).map(name =>
      [name, (values, t) => values.set(row(vectors, t * vectors.rows / prompt.length + prompt[t]))])
  }
  if (kind === 'encoder' || kind === 'off') {
    const sites = kind === 'encoder' ? encoder.map(layer => `${layer}.attn.z`) : [`${site}.z`, `${site}_out`]
    return sites.filter(name => weights[`mean.${name}`]).map(name => {
      const mean = weights[`mean.${name}`], size = mean.cols / (position === undefined ? 1 : config.heads)
      const from = size * (position ?? 0)
      return [name, (values, t) => values.set(row(mean, t).subarray(from, from + size), from)]
    })
  }
  const from = source.stream[site], place = from && rowOf(from, site, position)
  if (place === undefined) return []
  if (kind === 'exchange') return [[site, (values, t) => t === place && values.set(row(from, t))]]
  const direction = weights[`${along}.${site}`], index = ANSWER.indexOf(position)
  if (!direction || index < 0) return []
  const step = row(direction, index)
  return [[site, (values, t) => t === place && values.set(values.map((value, c) => value + amount * step[c]))]]
}

/** Run a network: what it writes and what happens inside, with interventions. */
function run(net, pair, actions, source) {
  const prompt = promptOf(pair), trace = { stream: {}, patterns: {}, missing: [] }, changes = []
  for (const action of actions.filter(text => !text.startsWith('invert'))) {
    const made = compile(net, action, prompt, source)
    if (!made.length) trace.missing.push(actionWords(action))
    changes.push(...made)
  }
  const at = (site, x) => {
    for (const [, change] of changes.filter(([place]) => place === site)) {
      for (let t = 0; t < x.rows; t++) change(row(x, t), t)
    }
    if (site.endsWith('.pattern')) trace.patterns[site.slice(0, -8)] = x
    else if (net.config.stream.includes(site)) trace.stream[site] = lastRows(x, x.rows)
    return x
  }
  const invert = (token, t) => (actions.includes(`invert:${ANSWER[t]}`)
    ? (token - ZERO + 1 + task.base) % task.base + ZERO : token)
  return Object.assign(trace, write(net, prompt, completionOf(pair), at, invert))
}

/** What the network's own head reads from the stream after each sublayer, and since where it reads the final token. */
function logitLens(net, trace) {
  const lens = net.config.stream.filter(site => site.startsWith('dec')).map(site => {
    const logits = net.head(lastRows(trace.stream[site], task.width))
    const chances = ANSWER.map((_, t) => softmax(row(logits, t)))
    return { site, chances, tokens: chances.map(argmax) }
  })
  const since = trace.tokens.map((token, t) => lens.findLastIndex(({ tokens }) => tokens[t] !== token) + 1)
  return { lens, since: since.map(at => Math.min(at, lens.length - 1)) }
}

const changed = (trace, before) => ANSWER.filter((_, t) => trace.tokens[t] !== before.tokens[t])

/** Do the interventions change other pairs, too? The same 100 each time, and sources for exchanges. */
async function sample() {
  let seed = 1
  const draw = () => task.shape.map(size => (seed = seed * 48271 % 2147483647) % size)
  const { nets, actions } = state, said = []
  for (const i of nets) {
    const counts = Object.fromEntries(ANSWER.map(name => [name, 0]))
    let right = 0
    for (let n = 1; n <= 100; n++) {
      const pair = draw(), before = run(loaded[i], pair, [])
      const trace = run(loaded[i], pair, actions, run(loaded[i], draw(), []))
      for (const name of changed(trace, before)) counts[name] += 1
      right += isRight(trace.tokens, pair)
      if (n % 10 === 0) await new Promise(done => setTimeout(done))
      if (actions !== state.actions || nets !== state.nets) return
    }
    const tokens = ANSWER.filter(name => counts[name]).map(name => `${name} in ${counts[name]}`).join(', ')
    said.push(`${labels[i]} answers ${right} right; changed: ${tokens || 'none'}.`)
  }
  $('sampled').textContent = `Of 100 random pairs: ${said.join(' ')}`
}

// --- drawing ---

const shade = chance => `background: rgb(var(--blue) / ${(0.45 * chance ** 1.5).toFixed(3)})`

function drawAnswer({ trace, before, column }) {
  const right = completionOf(state.pair)
  return element('div', { className: 'answer' }, ...ANSWER.map((name, t) => {
    const token = trace.tokens[t], was = before.tokens[t], read = trace.read[t], hidden = t >= state.shown
    const chance = percent(softmax(row(trace.logits, t))[token]), verdict = token === right[t] ? 'right' : 'wrong'
    const words = `${name} is ${symbol(token)}, probability ${chance}, ${verdict}` +
      (token === was ? '' : `; ${symbol(was)} without the interventions`) +
      (token === read ? '' : `; later positions read ${symbol(read)}`) + '. Invert for later positions'
    const title = hidden ? unwritten(name) : words
    const button = element('button', {
      id: `answer-${column}-${t}`, ariaLabel: title, title, ariaPressed: token !== read,
      className: hidden ? '' : verdict + (token === was ? '' : ' changed'), onclick: () => toggle(`invert:${name}`),
    }, hidden ? '·' : symbol(token) + (token === read ? '' : `→${symbol(read)}`))
    return element('div', { className: 'soft' }, name, button, hidden ? ' ' : chance)
  }))
}

function drawVerdict({ trace, before }) {
  const sum = `${joined(state.pair)} = `, good = isRight(trace.tokens, state.pair)
  if (state.shown < task.width) return `${sum}… (${state.shown} of ${task.width} tokens written)`
  const verdict = good ? '✓ right' : `✗ wrong, it is ${answerOf(state.pair)}`
  const names = changed(trace, before).join(', ')
  const change = names ? `change ${names}; without them ${valueOf(before.tokens)}` : 'change no token'
  return element('p', {}, `${sum}${valueOf(trace.tokens)} `,
    element('strong', { className: good ? 'right' : 'wrong' }, verdict),
    state.actions.length ? `. The interventions ${change}.` : '',
    trace.missing.length ? ` This network has no place for: ${trace.missing.join('; ')}.` : '')
}

const unwritten = name => `${name} is not written yet`

function lensWords({ lens, since, trace }, at, t) {
  const { site, chances, tokens } = lens[at], name = ANSWER[t]
  if (t >= state.shown) return unwritten(name)
  return `After ${siteWords(site)} the head reads ${symbol(tokens[t])} at ${name}, ` +
    `probability ${percent(chances[t][tokens[t]])}. ${name} is decided after ${siteWords(lens[since[t]].site)}: ` +
    `from there on it reads ${symbol(trace.tokens[t])}.`
}

function drawLens(view) {
  const { lens, since, column, detail, chosen: [layer, token] } = view
  const heading = (scope, text, title = '') => element('th', { scope, title }, text)
  const cell = ({ site, tokens, chances }, at, t) => {
    const hidden = t >= state.shown, words = lensWords(view, at, t)
    return element('td', {
      id: `lens-${column}-${site}-${t}`, role: 'gridcell', ariaLabel: words, ariaSelected: at === layer && t === token,
      className: hidden || at < since[t] ? '' : at > since[t] ? 'settled' : 'decided settled',
      style: hidden ? '' : shade(chances[t][tokens[t]]),
      tabIndex: at === Math.max(layer, 0) && t === Math.max(token, 0) ? 0 : -1, // arrows lead on
      onclick: () => update({ site, position: ANSWER[t] }), onmouseenter: () => { detail.textContent = words },
    }, hidden ? ' ' : symbol(tokens[t]))
  }
  const caption = 'What the head reads after each sublayer. The green line: decided from here on. Darker: more certain.'
  const top = element('tr', {}, heading('col', 'after'), ...ANSWER.map(name => heading('col', name)))
  const rows = lens.map((entry, at) => element('tr', {}, heading('row', siteShort(entry.site), siteWords(entry.site)),
    ...ANSWER.map((_, t) => cell(entry, at, t))))
  return element('table', { role: 'grid', onkeydown: moveChoice }, element('caption', {}, caption),
    element('thead', {}, top), element('tbody', {}, ...rows))
}

/** Keys of the grid: rows down, positions along. */
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Enter: [0, 0],
  ' ': [0, 0] }

function moveChoice(event) {
  const [down, along] = MOVES[event.key] ?? [], { target, currentTarget } = event
  const cell = currentTarget.rows[target.parentElement.rowIndex + down]?.cells[target.cellIndex + along]
  if (!cell?.matches('td')) return
  event.preventDefault()
  cell.focus()
  cell.click()
}

/** The heads' maps, the strongest at the chosen position first. */
function drawHeads(view) {
  const { trace, net: { config: { heads } }, column } = view
  const maps = Object.entries(trace.patterns).flatMap(([site, patterns]) => many(heads, h => {
    const size = patterns.cols / heads, x = columns(patterns, h * size, size), t = rowOf(x, site, state.position)
    const seen = t === undefined ? [] : row(x, t).filter(weight => weight > 0)
    return { site, h, x, t, strongest: seen.length > 1 ? Math.max(...seen) : 0 }
  })).sort((one, other) => other.strongest - one.strongest)
  const caption = `Each head's weights: rows look at columns, in the order of the tokens. In orange ` +
    `${state.position}, where the first heads are strongest. Click a head to turn it off.`
  const more = element('button', { id: `more-${column}`, onclick: () => update({ allHeads: !state.allHeads }) },
    state.allHeads ? 'Show the strongest 12' : `Show all ${maps.length} heads`)
  return [element('p', { className: 'soft' }, caption), element('div', { className: 'heads' },
    ...maps.slice(0, state.allHeads ? maps.length : 12).map(map => drawHead(view, map))), maps.length > 12 ? more : '']
}

/** A map: a row looks, a column is looked at. */
function drawHead({ column, detail }, { site, h, x, t }) {
  const encoder = site.startsWith('enc'), lookers = encoder ? PROMPT : [...PROMPT, ...ANSWER].slice(-x.rows)
  const read = [...PROMPT, '<s>', ...ANSWER].slice(0, -1)
  const seen = encoder || site.endsWith('cross_attn') ? PROMPT : read.slice(-x.cols)
  const words = (from, to) => `${siteWords(site)}, head ${h + 1}: ${lookers[from]} looks at ${seen[to]} ` +
    `with weight ${percent(row(x, from)[to])}.`
  const style = getComputedStyle(document.body), image = new ImageData(x.cols, x.rows)
  const [blue, mark] = ['--blue', '--mark'].map(name => style.getPropertyValue(name).split(' '))
  x.data.forEach((weight, i) => {
    const own = Math.floor(i / x.cols) === t
    image.data.set([...(own ? mark : blue), 255 * (own ? Math.max(weight, 0.15) : weight)], 4 * i)
  })
  const canvas = element('canvas', { width: x.cols, height: x.rows, onmousemove: ({ offsetX, offsetY }) => {
    const cell = (offset, size, count) => Math.min(Math.trunc(offset / size * count), count - 1)
    detail.textContent = words(cell(offsetY, canvas.clientHeight, x.rows), cell(offsetX, canvas.clientWidth, x.cols))
  } })
  canvas.getContext('2d').putImageData(image, 0, 0)
  const summary = t === undefined ? `${siteWords(site)}, head ${h + 1}.` : words(t, argmax(row(x, t)))
  const action = `off:${site}:${h}`, off = state.actions.includes(action)
  return element('button', {
    id: `head-${column}-${site}-${h}`, ariaPressed: off, ariaLabel: `${summary} Turn it ${off ? 'on' : 'off'}`,
    onclick: () => toggle(action), onfocus: () => { detail.textContent = summary },
  }, canvas, `${off ? '✗ ' : ''}${siteShort(site)} ${h + 1}`)
}

function drawView(view) {
  const { net: { config }, index, detail, chosen: [at, t] } = view
  const size = `${config.parameters.toLocaleString('en')} parameters, ${config.layers} layers, ${config.heads} heads`
  detail.textContent = at >= 0 && t >= 0 && t < state.shown ? lensWords(view, at, t)
    : 'Point at a cell or choose it: what it says in words.'
  return element('article', { className: 'column', ariaLabel: labels[index] },
    element('h2', {}, labels[index]), element('p', { className: 'soft' }, `${config.kind}, ${size}`),
    drawAnswer(view), element('div', { ariaLive: 'polite' }, drawVerdict(view)),
    element('h3', {}, 'When is each token decided?'), drawLens(view), detail,
    element('h3', {}, 'Attention'), ...drawHeads(view))
}

function drawOperands(id, key) {
  const pair = state[key]
  const change = (i, text) =>
    attempt(`${key}-error`, () => update({ [key]: pair.with(i, readNumber(String(text), i)) }))
  $(id).replaceChildren(...task.operand_names.map((name, i) => {
    const digits = digitsOf(pair[i], task.bits), places = ordered([...digits.keys()], task.prompt_order)
    const box = element('input', { id: `${key}-${i}`, className: 'number', inputMode: 'numeric', value: pair[i],
      autocomplete: 'off', oninput: () => change(i, box.value) })
    box.setAttribute('aria-describedby', `${key}-error`)
    const bits = places.map(place => element('button', {
      id: `${key}-${i}-${place}`, title: `${name}${place}`, ariaLabel: `${name}${place} is ${digits[place]}. Change it`,
      onclick: () => change(i, pair[i] + ((digits[place] + 1) % task.base - digits[place]) * task.base ** place),
    }, digits[place].toString(16)))
    const group = { className: 'bits', role: 'group', ariaLabel: `digits of ${name}, as the network reads them` }
    return element('div', { className: 'line' }, element('label', {}, `${name} `, box), element('div', group, ...bits))
  }))
}

/** Beside each intervention: what was found over all pairs, in networks like those in view. */
function drawFindings() {
  for (const [kind, section] of Object.entries(data.found)) {
    const said = [...new Set(views.map(({ net }) => net.config.found[kind]))].filter(Boolean)
    const link = data.docs ? element('a', { href: data.docs + section, target: '_blank' }, 'How it was measured')
      : 'Measured as docs/found/appendix.md says.'
    $(`found-${kind}`).replaceChildren(...(said.length ? [`${said.join(' ')} `, link] : []))
  }
}

/** Fill a select; what is not among the values chooses the first. */
function fill(id, options, chosen, choose) {
  $(id).replaceChildren(...options.map(([value, text]) => new Option(text, value, false, value === chosen)))
  $(id).onchange = () => choose?.($(id).value)
}

const hasCarry = config => config.weights.shapes.some(([name]) => name.startsWith('carry.'))

/** The controls that stand in the HTML: how they look now, and what they do. */
function drawControls() {
  const [first, second] = state.nets, here = loaded[first].config, chosen = id => $(id).value
  const nets = labels.map((label, i) => [String(i), label])
  const encoder = here.stream.some(site => site.startsWith('enc'))
  const off = [...(encoder ? ['encoder'] : []), ...switches(here)]
  fill('net0', nets, String(first), i => update({ nets: state.nets.with(0, Number(i)) }))
  fill('net1', [['', 'none'], ...nets], String(second), i => update({ nets: i ? [first, Number(i)] : [first] }))
  fill('site', here.stream.map(site => [site, siteWords(site)]), state.site, site => update({ site }))
  fill('position', POSITIONS.map(name => [name, name]), state.position, position => update({ position }))
  fill('part', off.map(action => [action, actionWords(action).replace(' off', '')]), chosen('part'))
  const along = [...(hasCarry(here) ? [['carry', 'the carry']] : []), ['value', 'the answer']]
  fill('along', along, chosen('along'), () => update({}))
  const carry = chosen('along') === 'carry', most = carry ? 3 : task.base ** (task.width - 2)
  const steering = `steer:${state.site}:${state.position}:${chosen('along')}:`
  const rest = state.actions.filter(action => !action.startsWith(steering))
  const amount = state.actions.find(action => action.startsWith(steering))?.slice(steering.length) ?? 0
  const steer = ({ target }) => update({ actions: Number(target.value) ? [...rest, steering + target.value] : rest })
  const vectors = task.shape.length * (task.bits * task.base + 1) - 1
  const controls = {
    steps: { onkeydown: ({ key }) => MOVES[key]?.[1] && step(MOVES[key][1]) },
    back: { disabled: state.shown === 0, onclick: () => step(-1) },
    forth: { disabled: state.shown === task.width, onclick: () => step(1) },
    play: { textContent: playing ? 'Pause' : 'Play', ariaPressed: Boolean(playing), onclick: play },
    sampling: { hidden: !state.actions.length },
    sample: { onclick: sample },
    clear: { onclick: () => update({ actions: [] }) },
    exchange: { onclick: () => toggle(`exchange:${state.site}:${state.position}`) },
    off: { onclick: () => toggle(chosen('part')) },
    encoder: { hidden: !encoder },
    tokens: { textContent: `One vector for each token and place: ${vectors} in all`,
      ariaPressed: state.actions.includes('tokens'), onclick: () => toggle('tokens') },
    amount: { min: -most, max: most, step: carry ? 0.25 : 1, value: amount, oninput: steer },
    'amount-text': { textContent: `${amount} ${carry ? 'carries' : ''}` },
  }
  for (const [id, properties] of Object.entries(controls)) Object.assign($(id), properties)
  $('chips').replaceChildren(...state.actions.map(action => element('li', {}, element('button', {
    id: `chip-${action}`, ariaLabel: `Remove: ${actionWords(action)}`, onclick: () => toggle(action),
  }, `${actionWords(action)} ✕`))))
}

/** Draw everything. What has the focus keeps it, with what is typed there. */
function draw() {
  const { id, value } = document.activeElement
  $('columns').replaceChildren(...views.map(drawView))
  drawOperands('operands', 'pair')
  drawOperands('others', 'other')
  drawControls()
  drawFindings()
  const again = $(id)
  if (!again || again === document.activeElement) return
  if (again.matches('input')) again.value = value
  again.focus()
}

// --- changes ---

function toggle(action) {
  const { actions } = state
  update({ actions: actions.includes(action) ? actions.filter(other => other !== action) : [...actions, action] })
}

async function update(changes) {
  state = { ...state, ...changes }
  state.shown = Math.min(Math.max(state.shown, 0), task.width)
  $('sampled').textContent = ''
  await Promise.all(state.nets.map(load))
  const { stream, layers } = loaded[state.nets[0]].config
  if (!stream.includes(state.site)) state.site = stream.filter(site => site.startsWith('dec'))[Math.floor(layers * 1.5)]
  views = state.nets.map((index, column) => {
    const net = loaded[index], before = run(net, state.pair, [])
    const trace = state.actions.length ? run(net, state.pair, state.actions, run(net, state.other, [])) : before
    const detail = element('p', { className: 'soft detail', ariaLive: 'polite' }), read = logitLens(net, trace)
    const chosen = [read.lens.findIndex(({ site }) => site === state.site), ANSWER.indexOf(state.position)]
    return { index, column, net, trace, before, detail, chosen, ...read }
  })
  draw()
  try {
    history.replaceState(null, '', address())
  } catch {
    // a frame in a notebook has no address of its own
  }
}

/** Take the state from the address; one that makes no sense gets a sentence, and the last good state stays. */
async function followAddress() {
  await update(attempt('address-error', () => readAddress(location.hash), 'The address was not followed. '))
}

function presets() {
  const { kind, stream, missed } = data.networks[0], top = task.shape[0] - 1, site = stream.at(-1)
  const position = ANSWER[Math.floor(task.width / 2)], ripple = (4 ** Math.ceil(task.bits / 2) - 1) / 3
  const offered = [
    [task.name === 'add' && task.base === 2, 'The carry that ripples through all bits',
      { pair: [ripple, task.shape[1] - ripple] }],
    [task.shape.length === 2, `${top} ${task.operator} 1`, { pair: [top, Math.min(1, task.shape[1] - 1)] }],
    [true, 'A wrong prefix', { actions: [`invert:${ANSWER[1]}`] }],
    [kind === 'Transformer', 'Without the encoder', { actions: ['tokens'] }],
    [hasCarry(data.networks[0]), `A carry into ${position} that is not there`,
      { site, position, actions: [`steer:${site}:${position}:carry:1`] }],
  ]
  if (missed) {
    const words = `${missed.position}, wrong in ${percent(missed.wrong)} of the pairs held out`
    offered.push([true, `The token that it learnt worst: ${words}`, { pair: missed.pair, position: missed.position }])
  }
  const plain = { pair: example(0), actions: [], shown: task.width }
  $('presets').replaceChildren('Try: ', ...offered.filter(([fits]) => fits).map(([, text, changes]) =>
    element('button', { onclick: () => update({ ...plain, ...changes }) }, text)))
}

function play() {
  const next = () => (state.shown < task.width ? step(1) : play())
  clearInterval(playing)
  playing = playing ? undefined : setInterval(next, 700)
  update({ shown: playing && state.shown === task.width ? 0 : state.shown })
}

const step = count => update({ shown: state.shown + count })

async function start() {
  answers = (await unpack(data.answers)).answers
  $('about').textContent = `Networks that write ${joined(task.operand_names)} token by token, computed here with ` +
    'their own weights. Type numbers, step through the answer, change something inside.'
  presets()
  addEventListener('hashchange', followAddress)
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw)
  await followAddress()
  document.body.dataset.ready = performance.now() // milliseconds from opening the page to the first answer
}

start()
