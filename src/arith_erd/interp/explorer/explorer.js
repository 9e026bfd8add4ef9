// What one sees and does. The state is in the address; every change runs the networks again and draws everything anew.
// Text from outside enters the page as text only.

const data = JSON.parse(document.getElementById('data').textContent)
const { task } = data
const $ = id => document.getElementById(id)
const loaded = [] // networks that have been unpacked
let answers, views = [], playing

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value)
    else if (value !== undefined) made.setAttribute(name, value)
  }
  made.append(...children)
  return made
}

// --- numbers, tokens and words ---

const many = (count, make) => Array.from({ length: count }, (_, i) => make(i))
const digitsOf = (value, count) => many(count, i => Math.floor(value / task.base ** i) % task.base)
const ordered = (digits, order) => (order === 'reverse' ? digits : [...digits].reverse())
const symbol = token => ['.', 's', task.operator][token] ?? (token - ZERO).toString(16)
const percent = share => `${(100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 0 : 1)}%`
const joined = pair => pair.join(` ${task.operator} `)
const answerOf = pair => answers.data[pair.reduce((index, x, i) => index * task.shape[i] + x, 0)]
const completionOf = pair => ordered(digitsOf(answerOf(pair), task.width), task.completion_order).map(d => d + ZERO)
const valueOf = tokens => ordered([...tokens], task.completion_order)
  .reduce((sum, token, i) => sum + (token >= ZERO ? token - ZERO : 0) * task.base ** i, 0)

function promptOf(pair) {
  const parts = pair.map(x => ordered(digitsOf(x, task.bits), task.prompt_order).map(digit => digit + ZERO))
  return parts.flatMap((part, i) => (i ? [2, ...part] : part))
}

function readNumber(text, i) {
  if (/^\s*\d+\s*$/.test(text) && Number(text) < task.shape[i]) return Number(text)
  const given = `${task.operand_names[i]} = "${text.slice(0, 20)}"`
  throw Error(`${given}: expected a whole number from 0 to ${task.shape[i] - 1}.`)
}

const fullLabel = ({ name, seed }) => `${name}, seed ${seed}`
const shortLabel = ({ name, seed }) => `${name.replace(/-seed[^-]*-[0-9a-f]{8}$/, '')}, seed ${seed}`
const twice = info => data.networks.filter(other => shortLabel(other) === shortLabel(info)).length > 1
const labels = data.networks.map(info => (twice(info) ? fullLabel(info) : shortLabel(info)))

const SELF = 'self-attention', CROSS = 'cross-attention'
const PART = { resid_mid: SELF, attn: SELF, resid_mid_cross: CROSS, cross_attn: CROSS }
const partOf = site => PART[site.split('.')[2]] ?? 'feed-forward'
const layerOf = site => site.split('.')[1]
const siteWords = site => `${site.startsWith('enc') ? 'encoder' : 'decoder'} layer ${layerOf(site)}, ${partOf(site)}`
const siteShort = site => `${site.startsWith('enc') ? 'enc ' : ''}${layerOf(site)} ${partOf(site).split('-')[0]}`

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
  pair: example(0), other: example(1), nets: [0, data.networks.length > 1 ? data.networks.length - 1 : -1], actions: [],
  shown: task.width, site: undefined, position: task.answer_names[Math.floor(task.width / 2)],
}

const POSITIONS = [...task.answer_names, ...task.prompt_names]

function isAction(text) {
  const [kind, site, position, along, amount] = text.split(':'), count = text.split(':').length
  const placed = data.networks.some(net => net.stream.includes(site)) && POSITIONS.includes(position)
  if (kind === 'invert') return count === 2 && task.answer_names.includes(site)
  if (kind === 'exchange') return count === 3 && placed
  if (kind === 'off') return data.networks.some((_, i) => parts(i).includes(text.slice(4)))
  const moved = ['carry', 'value'].includes(along) && Math.abs(amount) <= task.base ** task.width
  if (kind === 'steer') return count === 5 && placed && moved
  return ['encoder', 'tokens'].includes(text)
}

/** The state that an address describes; what it leaves out stays, except interventions. */
function readAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, '')), next = { ...state, actions: [] }
  for (const [key, text] of given) {
    if (task.operand_names.includes(key)) {
      const i = task.operand_names.indexOf(key)
      next.pair = next.pair.with(i, readNumber(text, i))
    } else if (key === 'from') {
      next.other = next.other.map((_, i) => readNumber(text.split(',')[i] ?? '', i))
    } else if (key === 'do') {
      next.actions = text.split(';').filter(Boolean)
      const wrong = next.actions.find(action => !isAction(action))
      if (wrong) throw Error(`do: "${wrong.slice(0, 40)}" is no intervention of these networks.`)
    } else if (key === 'net') {
      const nets = text.split('|').map(name => labels.indexOf(name))
      if (nets.length > 2 || nets.includes(-1)) throw Error(`net: "${text.slice(0, 60)}" is not in this page.`)
      next.nets = [nets[0], nets[1] ?? -1]
    } else if (key === 'shown') {
      next.shown = Math.min(Math.max(Math.round(Number(text)) || 0, 0), task.width)
    } else {
      throw Error(`"${key.slice(0, 20)}" is no key.`)
    }
  }
  return next
}

function address() {
  const items = [...state.pair.map((x, i) => [task.operand_names[i], x])]
  items.push(['net', state.nets.filter(i => i >= 0).map(i => labels[i]).join('|')])
  if (state.actions.length) items.push(['do', state.actions.join(';')])
  if (state.actions.some(action => action.startsWith('exchange'))) items.push(['from', state.other.join(',')])
  if (state.shown < task.width) items.push(['shown', state.shown])
  return `#${new URLSearchParams(items)}`
}

// --- running ---

async function load(i) {
  const info = data.networks[i], tensors = await unpack(info.weights)
  return loaded[i] ??= { info, tensors, network: new { Transformer, NanoGPT }[info.kind](info, tensors) }
}

/** What can be turned off: `enc.1.attn` all heads of a sublayer, `enc.1.attn:0` one of them, `enc.1.mlp`. */
function parts(i) {
  const { weights, heads } = data.networks[i]
  return weights.shapes.map(([name]) => /^mean\.(.*)\.(z|mlp_out)$/.exec(name)).filter(Boolean).flatMap(
    ([, site, what]) => (what === 'z' ? [site, ...many(heads, h => `${site}:${h}`)] : [`${site}.mlp`]))
}

/** The row of x that a position has at a site, or undefined: in a decoder the answer's positions are the last ones. */
function rowOf(x, site, position) {
  const t = task.answer_names.indexOf(position), place = task.prompt_names.indexOf(position)
  if (t >= 0) return site.startsWith('enc') ? undefined : x.rows - task.width + t
  return site.startsWith('enc') || x.rows > task.width ? place : undefined
}

/** What puts means in the place of a site, of one head or of all. */
function average({ tensors, info }, site, head) {
  const mean = tensors[`mean.${site}`], size = mean.cols / info.heads
  const [from, to] = head === undefined ? [0, mean.cols] : [head * size, (Number(head) + 1) * size]
  return x => {
    for (let t = 0; t < x.rows; t++) row(x, t).set(row(mean, t).subarray(from, to), from)
  }
}

/** An intervention as functions by site, which change x in place; undefined if this network lacks the place. */
function compile(net, action, prompt, source) {
  const { tensors, info } = net, [kind, site, position, along, amount] = action.split(':')
  const encoders = info.stream.filter(name => /^enc\.\d+$/.test(name))
  const averages = (sites, head) => (sites.length && sites.every(name => tensors[`mean.${name}`])
    ? Object.fromEntries(sites.map(name => [name, average(net, name, head)])) : undefined)
  if (kind === 'off') return averages([site.endsWith('.mlp') ? `${site}_out` : `${site}.z`], position)
  if (kind === 'encoder') return averages(encoders.map(layer => `${layer}.attn.z`))
  if (kind === 'tokens') {
    if (!encoders.length) return undefined
    const vectors = tensors[`tokens.${encoders.at(-1)}`]
    const vector = (token, t, size) => row(vectors, t).subarray(token * size, (token + 1) * size)
    return { [encoders.at(-1)]: x => prompt.forEach((token, t) => row(x, t).set(vector(token, t, x.cols))) }
  }
  if (kind === 'exchange') {
    const from = source.stream[site], t = from && rowOf(from, site, position)
    return t === undefined ? undefined : { [site]: x => row(x, t).set(row(from, t)) }
  }
  const direction = tensors[`${along}.${site}`], t = task.answer_names.indexOf(position)
  if (!direction || t < 0) return undefined
  return { [site]: x => row(x, rowOf(x, site, position)).forEach((value, c, values) => {
    values[c] = value + amount * row(direction, t)[c]
  }) }
}

/** Run a network: what it writes and what happens inside, with interventions. */
function run(net, pair, actions, source) {
  const prompt = promptOf(pair), forced = {}, trace = { stream: {}, patterns: {}, missing: [] }, changes = []
  for (const action of actions.filter(text => !text.startsWith('invert'))) {
    const made = compile(net, action, prompt, source)
    if (made) changes.push(made)
    else trace.missing.push(actionWords(action))
  }
  const at = (site, x) => {
    for (const change of changes) change[site]?.(x)
    if (site.endsWith('.pattern')) trace.patterns[site.slice(0, -8)] = x
    else if (net.info.stream.includes(site)) trace.stream[site] = { ...x, data: x.data.slice() }
    return x
  }
  let result = write(net.network, prompt, completionOf(pair), at)
  for (const [t, name] of task.answer_names.entries()) { // in order: a token depends on what was inverted before it
    if (!actions.includes(`invert:${name}`)) continue
    forced[t] = (result.tokens[t] - ZERO + 1 + task.base) % task.base + ZERO
    result = write(net.network, prompt, completionOf(pair), at, forced)
  }
  return Object.assign(trace, result, { pair, prompt })
}

/** What the network's own head reads from the stream after each sublayer, and since where it reads the final token. */
function logitLens(net, trace) {
  const lens = net.info.stream.filter(site => site.startsWith('dec')).map(site => {
    const logits = net.network.head(lastRows(trace.stream[site], task.width))
    const chances = task.answer_names.map((_, t) => softmax(row(logits, t)))
    return { site, chances, tokens: chances.map(argmax) }
  })
  const since = trace.tokens.map((token, t) => lens.findLastIndex(({ tokens }) => tokens[t] !== token) + 1)
  return { lens, since: since.map(at => Math.min(at, lens.length - 1)) }
}

/** Do the interventions change other pairs, too? The same 100 each time, and sources for exchanges. */
async function sample() {
  let seed = 1
  const draw = () => task.shape.map(size => (seed = seed * 48271 % 2147483647) % size)
  const { nets, actions } = state, said = []
  for (const i of nets.filter(net => net >= 0)) {
    const changed = task.answer_names.map(() => 0)
    let right = 0
    for (let n = 1; n <= 100; n++) {
      const pair = draw(), before = run(loaded[i], pair, []), source = run(loaded[i], draw(), [])
      const { tokens } = run(loaded[i], pair, actions, source)
      for (const [t, token] of tokens.entries()) changed[t] += token !== before.tokens[t]
      right += valueOf(tokens) === answerOf(pair)
      if (n % 10 === 0) await new Promise(done => setTimeout(done))
      if (actions !== state.actions || nets !== state.nets) return
    }
    const tokens = task.answer_names.map((name, t) => (changed[t] ? `${name} in ${changed[t]}` : '')).filter(Boolean)
    said.push(`${labels[i]} answers ${right} right; changed: ${tokens.join(', ') || 'none'}.`)
  }
  $('sampled').textContent = `Of 100 random pairs: ${said.join(' ')}`
}

// --- drawing ---

const shade = chance => `background: rgb(var(--blue) / ${(0.45 * chance ** 1.5).toFixed(3)})`

function drawAnswer({ trace, before, column }) {
  const right = completionOf(trace.pair)
  return element('div', { class: 'answer' }, ...task.answer_names.map((name, t) => {
    const token = trace.tokens[t], hidden = t >= state.shown, inverted = trace.read[t] !== token
    const chance = percent(softmax(row(trace.logits, t))[token]), changed = token !== before.tokens[t]
    const verdict = token === right[t] ? 'right' : 'wrong'
    const words = hidden ? `${name} is not written yet` :
      `${name} is ${symbol(token)}, probability ${chance}, ${verdict}` +
      `${changed ? `; ${symbol(before.tokens[t])} without the interventions` : ''}` +
      `${inverted ? `; later positions read ${symbol(trace.read[t])}` : ''}. Invert for later positions`
    const button = element('button', {
      'aria-label': words, title: words, 'aria-pressed': inverted, 'data-key': `answer ${column} ${t}`,
      class: hidden ? '' : `${verdict}${changed ? ' changed' : ''}`, onclick: () => toggle(`invert:${name}`),
    }, hidden ? '·' : inverted ? `${symbol(token)}→${symbol(trace.read[t])}` : symbol(token))
    return element('div', { class: 'soft' }, name, button, hidden ? ' ' : chance)
  }))
}

function drawVerdict({ trace, before }) {
  if (state.shown < task.width) return `${joined(trace.pair)} = … (${state.shown} of ${task.width} tokens written)`
  const good = String(trace.tokens) === String(completionOf(trace.pair))
  const verdict = good ? '✓ right' : `✗ wrong, it is ${answerOf(trace.pair)}`
  const mark = element('strong', { class: good ? 'right' : 'wrong' }, verdict)
  const line = element('p', {}, `${joined(trace.pair)} = ${valueOf(trace.tokens)} `, mark)
  const changed = task.answer_names.filter((_, t) => trace.tokens[t] !== before.tokens[t]).join(', ')
  const words = changed ? `change ${changed}; without them ${valueOf(before.tokens)}` : 'change no token'
  if (state.actions.length) line.append(`. The interventions ${words}.`)
  if (trace.missing.length) line.append(` This network has no place for: ${trace.missing.join('; ')}.`)
  return line
}

function lensWords({ lens, since, trace }, site, t) {
  const { chances, tokens } = lens.find(entry => entry.site === site), name = task.answer_names[t]
  const chance = percent(chances[t][tokens[t]])
  return `After ${siteWords(site)} the head reads ${symbol(tokens[t])} at ${name}, probability ${chance}. ` +
    `${name} is decided after ${siteWords(lens[since[t]].site)}: from there on it reads ${symbol(trace.tokens[t])}.`
}

function drawLens(view) {
  const { lens, since, column } = view, absent = !lens.some(({ site }) => site === state.site)
  const heading = (scope, text, title) => element('th', { scope, title }, text)
  const cell = ({ site, tokens, chances }, at, t) => {
    const name = task.answer_names[t], hidden = t >= state.shown
    const chosen = site === state.site && name === state.position
    const look = at === since[t] ? 'decided settled' : 'settled'
    const words = hidden ? `${name} is not written yet` : lensWords(view, site, t)
    return element('td', {
      role: 'gridcell', class: hidden ? 'hidden' : at < since[t] ? '' : look,
      style: shade(chances[t][tokens[t]]), tabindex: chosen || (absent && !at && !t) ? 0 : -1, 'aria-selected': chosen,
      'aria-label': words, 'data-key': `lens ${column} ${site} ${t}`, onclick: () => update({ site, position: name }),
      onkeydown: event => moveChoice(event, view, at, t), onmouseenter: () => { view.detail.textContent = words },
    }, hidden ? ' ' : symbol(tokens[t]))
  }
  const rows = lens.map((entry, at) => element('tr', {}, heading('row', siteShort(entry.site), siteWords(entry.site)),
    ...entry.tokens.map((_, t) => cell(entry, at, t))))
  const caption = 'What the head reads after each sublayer. The green line: decided from here on. Darker: more certain.'
  const top = element('tr', {}, heading('col', 'after'), ...task.answer_names.map(name => heading('col', name)))
  return element('table', { role: 'grid' }, element('caption', {}, caption), element('thead', {}, top),
    element('tbody', {}, ...rows))
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }

async function moveChoice(event, { lens, column }, at, t) {
  const [down, along] = ARROWS[event.key] ?? [0, 0]
  const site = lens[at + down]?.site, position = task.answer_names[t + along]
  if (!['Enter', ' '].includes(event.key) && (!(down || along) || !site || !position)) return
  event.preventDefault()
  await update({ site, position })
  document.querySelector(`[data-key="lens ${column} ${site} ${t + along}"]`).focus()
}

/** A map of each head: a row looks, a column is looked at. The strongest at the chosen position first. */
function drawHeads(view) {
  const { trace, net: { info }, column } = view, { prompt_names: prompt, answer_names: answer } = task
  const heads = Object.entries(trace.patterns).flatMap(([site, x]) => many(info.heads, h => {
    const size = x.cols / info.heads, weights = t => row(x, t).subarray(h * size, (h + 1) * size)
    const encoder = site.startsWith('enc'), lookers = encoder ? prompt : [...prompt, ...answer].slice(-x.rows)
    const read = [...prompt, '<s>', ...answer.slice(0, -1)].slice(-size)
    const names = encoder || site.endsWith('cross_attn') ? prompt : read
    const t = rowOf(x, site, state.position), seen = t === undefined ? [] : weights(t).filter(weight => weight > 0)
    return { site, h, x, t, names, lookers, weights, strongest: seen.length > 1 ? Math.max(...seen) : 0 }
  })).sort((one, other) => other.strongest - one.strongest)
  const style = getComputedStyle(document.body)
  const [blue, mark] = ['--blue', '--mark'].map(name => style.getPropertyValue(name).split(' '))
  const maps = heads.slice(0, view.all ? heads.length : 12).map(({ site, h, x, t, names, lookers, weights }) => {
    const words = (from, to) => `${siteWords(site)}, head ${h + 1}: ${lookers[from]} looks at ${names[to]} ` +
      `with weight ${percent(weights(from)[to])}.`
    const image = new ImageData(names.length, x.rows), off = `off:${site}:${h}`, on = state.actions.includes(off)
    for (let i = 0; i < x.rows * names.length; i++) {
      const from = Math.floor(i / names.length), weight = weights(from)[i % names.length]
      image.data.set([...(from === t ? mark : blue), 255 * (from === t ? Math.max(weight, 0.15) : weight)], 4 * i)
    }
    const canvas = element('canvas', { width: names.length, height: x.rows, onmousemove: event => {
      const cell = (offset, size, count) => Math.min(Math.floor(offset / size * count), count - 1)
      const { offsetX, offsetY } = event, { clientWidth, clientHeight } = canvas
      view.detail.textContent = words(cell(offsetY, clientHeight, x.rows), cell(offsetX, clientWidth, names.length))
    } })
    canvas.getContext('2d').putImageData(image, 0, 0)
    const summary = t === undefined ? `${siteWords(site)}, head ${h + 1}.` : words(t, argmax(weights(t)))
    return element('button', {
      'aria-pressed': on, 'aria-label': `${summary} Turn it ${on ? 'on' : 'off'}`,
      'data-key': `head ${column} ${site} ${h}`, onclick: () => toggle(off),
      onfocus: () => { view.detail.textContent = summary },
    }, canvas, `${on ? '✗ ' : ''}${siteShort(site)} ${h + 1}`)
  })
  const caption = `Each head's weights: rows look at columns, in the order of the tokens. In orange ` +
    `${state.position}, where the first heads are strongest. Click a head to turn it off.`
  const more = element('button', { 'data-key': `more ${column}`, onclick: () => { view.all = !view.all; draw() } },
    view.all ? 'Show the strongest 12' : `Show all ${heads.length} heads`)
  const grid = element('div', { class: 'heads' }, ...maps)
  return [element('p', { class: 'soft' }, caption), grid, heads.length > 12 ? more : '']
}

function drawView(view) {
  const { info } = view.net, chosen = task.answer_names.indexOf(state.position)
  const known = chosen >= 0 && chosen < state.shown && view.lens.some(({ site }) => site === state.site)
  const size = `${info.parameters.toLocaleString('en')} parameters, ${info.layers} layers, ${info.heads} heads`
  view.detail = element('p', { class: 'soft detail', 'aria-live': 'polite' },
    known ? lensWords(view, state.site, chosen) : 'Point at a cell or choose it: what it says in words.')
  return element('article', { class: 'column', 'aria-label': labels[view.index] },
    element('h2', {}, labels[view.index]), element('p', { class: 'soft' }, `${info.kind}, ${size}`),
    drawAnswer(view), element('div', { 'aria-live': 'polite' }, drawVerdict(view)),
    element('h3', {}, 'When is each token decided?'), drawLens(view), view.detail,
    element('h3', {}, 'Attention'), ...drawHeads(view))
}

function drawOperands(id, key) {
  const error = $(`${key}-error`), pair = state[key]
  $(id).replaceChildren(...task.operand_names.map((name, i) => {
    const change = value => {
      try {
        update({ [key]: pair.with(i, readNumber(String(value), i)) })
        error.textContent = ''
      } catch ({ message }) {
        error.textContent = message
      }
    }
    const digits = digitsOf(pair[i], task.bits), places = ordered([...digits.keys()], task.prompt_order)
    const box = element('input', { class: 'number', inputmode: 'numeric', value: pair[i], autocomplete: 'off',
      'data-key': `${key} ${i}`, 'aria-describedby': error.id, oninput: event => change(event.target.value) })
    const bits = places.map(place => element('button', {
      'aria-label': `${name}${place} is ${digits[place]}. Change it`, title: `${name}${place}`,
      'data-key': `${key} ${i} ${place}`,
      onclick: () => change(pair[i] + ((digits[place] + 1) % task.base - digits[place]) * task.base ** place),
    }, digits[place].toString(16)))
    const group = { class: 'bits', role: 'group', 'aria-label': `digits of ${name}, as the network reads them` }
    return element('div', { class: 'line' }, element('label', {}, `${name} `, box), element('div', group, ...bits))
  }))
}

/** Beside each intervention: what was found over all pairs, in networks like those in view. */
function drawFindings() {
  for (const [kind, section] of Object.entries(data.found)) {
    const said = [...new Set(views.map(({ net }) => net.info.found[kind]))].filter(Boolean)
    const link = data.docs ? element('a', { href: data.docs + section, target: '_blank' }, 'How it was measured')
      : 'Measured as docs/found/appendix.md says.'
    $(`found-${kind}`).replaceChildren(...(said.length ? [`${said.join(' ')} `, link] : []))
  }
}

function fill(id, options, chosen) {
  $(id).replaceChildren(...options.map(([value, text]) => element('option', { value }, text)))
  $(id).value = options.some(([value]) => value === chosen) ? chosen : options[0]?.[0]
}

function drawControls() {
  const nets = labels.map((label, i) => [String(i), label]), here = loaded[state.nets[0]].info
  fill('net0', nets, String(state.nets[0]))
  fill('net1', [['-1', 'none'], ...nets], String(state.nets[1]))
  fill('site', here.stream.map(site => [site, siteWords(site)]), state.site)
  fill('position', POSITIONS.map(name => [name, name]), state.position)
  const encoder = here.stream.some(site => site.startsWith('enc'))
  const off = [...(encoder ? ['encoder'] : []), ...parts(state.nets[0]).map(part => `off:${part}`)]
  fill('part', off.map(action => [action, actionWords(action).replace(' off', '')]), $('part').value)
  $('encoder').hidden = !encoder
  const vectors = task.shape.length * (task.bits * task.base + 1) - 1
  $('tokens').textContent = `One vector for each token and place: ${vectors} in all`
  $('tokens').setAttribute('aria-pressed', state.actions.includes('tokens'))
  const carries = here.weights.shapes.some(([name]) => name.startsWith('carry.'))
  fill('along', [...(carries ? [['carry', 'the carry']] : []), ['value', 'the answer']], $('along').value)
  const carry = $('along').value === 'carry', most = carry ? 3 : task.base ** (task.width - 2), place = steering()
  const amount = state.actions.find(action => action.startsWith(place))?.slice(place.length) ?? 0
  Object.assign($('amount'), { min: -most, max: most, step: carry ? 0.25 : 1, value: amount })
  $('amount-text').textContent = `${amount} ${carry ? 'carries' : ''}`
  $('chips').replaceChildren(...state.actions.map(action => element('li', {}, element('button', {
    'data-key': `chip ${action}`, 'aria-label': `Remove: ${actionWords(action)}`, onclick: () => toggle(action),
  }, `${actionWords(action)} ✕`))))
  $('sampling').hidden = !state.actions.length
  $('back').disabled = state.shown === 0
  $('forth').disabled = state.shown === task.width
  $('play').textContent = playing ? 'Pause' : 'Play'
  $('play').setAttribute('aria-pressed', Boolean(playing))
}

function draw() {
  const focused = document.activeElement, key = focused?.dataset?.key, typed = focused?.value
  $('columns').replaceChildren(...views.map(drawView))
  drawOperands('operands', 'pair')
  drawOperands('others', 'other')
  drawControls()
  drawFindings()
  const again = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`)
  if (again && focused !== again) again.focus()
  if (again?.tagName !== 'INPUT') return
  again.value = typed
  again.setSelectionRange(typed.length, typed.length)
}

// --- changes ---

const steering = () => `steer:${state.site}:${state.position}:${$('along').value}:`

function toggle(action) {
  const { actions } = state
  update({ actions: actions.includes(action) ? actions.filter(other => other !== action) : [...actions, action] })
}

async function update(changes) {
  state = { ...state, ...changes }
  $('sampled').textContent = ''
  for (const i of state.nets) if (i >= 0 && !loaded[i]) await load(i)
  const { stream, layers } = loaded[state.nets[0]].info
  if (!stream.includes(state.site)) state.site = stream.filter(site => site.startsWith('dec'))[Math.floor(layers * 1.5)]
  const old = views
  views = state.nets.filter(i => i >= 0).map((index, column) => {
    const net = loaded[index], before = run(net, state.pair, []), { all } = old[column] ?? {}
    const trace = state.actions.length ? run(net, state.pair, state.actions, run(net, state.other, [])) : before
    return { index, column, net, trace, before, all, ...logitLens(net, trace) }
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
  let next = {}, sentence = ''
  try {
    next = readAddress(location.hash)
  } catch ({ message }) {
    sentence = `The address was not followed. ${message}`
  }
  await update(next)
  $('address-error').textContent = sentence
}

function presets() {
  const top = task.shape.map(size => size - 1), plain = { pair: example(0), actions: [], shown: task.width }, made = []
  const { kind, weights, stream, missed } = data.networks[0]
  const ripple = digitsOf(0, task.bits).reduce((sum, _, i) => sum + (i % 2 ? 0 : 2 ** i), 0)
  if (task.name === 'add' && task.base === 2) {
    made.push(['The carry that ripples through all bits', { ...plain, pair: [ripple, top[1] - ripple + 1] }])
  }
  if (top.length === 2) made.push([`${top[0]} ${task.operator} 1`, { ...plain, pair: [top[0], Math.min(1, top[1])] }])
  made.push(['A wrong prefix', { ...plain, actions: [`invert:${task.answer_names[1]}`] }])
  if (kind === 'Transformer') made.push(['Without the encoder', { ...plain, actions: ['tokens'] }])
  if (weights.shapes.some(([name]) => name.startsWith('carry.'))) {
    const place = { site: stream.at(-1), position: task.answer_names[Math.floor(task.width / 2)] }
    const actions = [`steer:${place.site}:${place.position}:carry:1`]
    made.push([`A carry into ${place.position} that is not there`, { ...plain, ...place, actions }])
  }
  if (missed) {
    const { position, pair } = missed, words = `wrong in ${percent(missed.wrong)} of the pairs held out`
    made.push([`The token that it learnt worst: ${position}, ${words}`, { ...plain, pair, position }])
  }
  $('presets').replaceChildren('Try: ', ...made.map(([text, changes]) =>
    element('button', { onclick: () => update(changes) }, text)))
}

function play() {
  const next = () => (state.shown < task.width ? update({ shown: state.shown + 1 }) : play())
  clearInterval(playing)
  playing = playing ? undefined : setInterval(next, 700)
  update({ shown: playing && state.shown === task.width ? 0 : state.shown })
}

async function start() {
  answers = (await unpack(data.answers)).answers
  $('about').textContent = `Networks that write ${joined(task.operand_names)} token by token, computed here with ` +
    'their own weights. Type numbers, step through the answer, change something inside.'
  const on = (id, event, change) => $(id).addEventListener(event, change)
  const step = count => update({ shown: Math.min(Math.max(state.shown + count, 0), task.width) })
  const chosen = n => update({ nets: state.nets.with(n, Number($(`net${n}`).value)) })
  for (const n of [0, 1]) on(`net${n}`, 'change', () => chosen(n))
  for (const id of ['site', 'position']) on(id, 'change', event => update({ [id]: event.target.value }))
  on('back', 'click', () => step(-1))
  on('forth', 'click', () => step(1))
  on('play', 'click', play)
  on('steps', 'keydown', ({ key }) => ['ArrowLeft', 'ArrowRight'].includes(key) && step(key === 'ArrowLeft' ? -1 : 1))
  on('exchange', 'click', () => toggle(`exchange:${state.site}:${state.position}`))
  on('off', 'click', () => toggle($('part').value))
  on('tokens', 'click', () => toggle('tokens'))
  on('sample', 'click', sample)
  on('clear', 'click', () => update({ actions: [] }))
  on('along', 'change', () => update({}))
  on('amount', 'input', ({ target: { value } }) => {
    const rest = state.actions.filter(action => !action.startsWith(steering()))
    update({ actions: Number(value) ? [...rest, `${steering()}${value}`] : rest })
  })
  presets()
  addEventListener('hashchange', followAddress)
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw)
  await followAddress()
  document.body.dataset.ready = performance.now() // milliseconds from opening the page to the first answer
}

start()
