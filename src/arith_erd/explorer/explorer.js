// Controls and views. The state is in the address; every change runs the networks again and redraws everything.
// Text from outside enters the page as text only.

const $ = id => document.getElementById(id)
const data = JSON.parse($('data').textContent)
const { networks, task, task: { prompt_names: PROMPT, answer_names: ANSWER } } = data
const hidden = 'answer' in networks[0] // the page is a game, as in find.js
const POSITIONS = [...ANSWER, ...PROMPT], MIDDLE = ANSWER[Math.floor(ANSWER.length / 2)]
const loaded = [] // networks that have been unpacked
let views = [], playing

const many = (count, make) => Array.from({ length: count }, (_, i) => make(i))
const digitsOf = (value, count) => many(count, i => Math.floor(value / task.base ** i) % task.base)
const ordered = (digits, order) => (order === 'reverse' ? digits : [...digits].reverse())
const symbol = token => ['.', 's', task.operator][token] ?? (token - ZERO).toString(16)
const percent = share => `${(100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 0 : 1)}%`
const joined = pair => pair.join(` ${task.operator} `)
const completionOf = pair =>
  [...row(loaded.find(Boolean).weights.completions, pair.reduce((at, x, i) => at * task.shape[i] + x, 0))]
const isRight = (tokens, pair) => String(tokens) === String(completionOf(pair))
const promptOf = pair => task.prompt_places.map(([i, t]) => (t < 0 ? 2 : digitsOf(pair[i], task.bits)[t] + ZERO))
const valueOf = tokens => task.answer_positions
  .reduce((sum, t, i) => sum + Math.max(tokens[t] - ZERO, 0) * task.base ** i, 0)

function readNumber(text, i) {
  if (/^\s*\d+\s*$/.test(text) && Number(text) < task.shape[i]) return Number(text)
  const range = `expected a whole number from 0 to ${task.shape[i] - 1}.`
  throw Error(`${task.operand_names[i]} = "${text.slice(0, 20)}": ${range}`)
}

const named = ({ name, seed, epoch }) => `${name}${epoch === null ? '' : `, epoch ${epoch}`}, seed ${seed}`
const kindOf = ({ kind, epoch }) => (epoch === null ? `${kind}, trained` : kind)
const inWords = networks.map(one => (one.name.startsWith('handcoded-') ? `Written by hand: ${one.name.slice(10)}`
  : named({ ...one, name: one.name.replace(/^.*-seed[^-]*-[0-9a-f]{8}$/, kindOf(one)) })))
const labels = inWords.map((words, i) => (inWords.filter(x => x === words).length > 1 ? named(networks[i]) : words))
const inEncoder = site => site.startsWith('enc')
const layerOf = site => site.split('.')[1]
const partOf = site => (site.includes('cross') ? 'cross' : /attn|mid/.test(site) ? 'self' : 'feed')
const siteShort = site => `${inEncoder(site) ? 'enc ' : ''}${layerOf(site)} ${partOf(site)}`
const siteWords = site => `${inEncoder(site) ? 'encoder' : 'decoder'} layer ${layerOf(site)}, ` +
  { self: 'self-attention', cross: 'cross-attention', feed: 'feed-forward' }[partOf(site)]
const stepWords = (x, along) => `${x} ${along !== 'carry' ? 'in value' : Math.abs(x) === 1 ? 'carry' : 'carries'}`
const headWords = (site, h) => `${siteWords(site)}, head ${h}`

function actionWords(action) {
  const [kind, site, position, along, amount] = action.split(':')
  if (kind === 'invert') return `${site} inverted for later positions`
  if (kind === 'exchange') return `${position} after ${siteWords(site)}, from ${joined(state.other)}`
  if (kind === 'off') return `${position === undefined ? siteWords(site) : headWords(site, position)} off`
  if (kind === 'encoder') return 'all self-attention of the encoder off'
  if (kind === 'tokens') return 'encoder replaced by its vectors'
  return `${position} after ${siteWords(site)}, moved by ${stepWords(amount, along)}`
}

const example = more => task.shape.map((size, i) => Math.min([27, 100, 1][i] ?? 1, size - 2) + more)
const plain = { pair: example(0), actions: [], shown: ANSWER.length }
/** What one sees. Actions are texts as in the address, such as `steer:dec.4:r4:carry:-1`. */
let state = { ...plain, other: example(1), nets: [...new Set([0, networks.length - 1])], position: MIDDLE,
  along: 'carry', amount: 0, allHeads: false, errors: {}, sampled: '', games: [] }
if (hidden) Object.assign(state, newGame())

/** What can be turned off: `off:enc.1.attn` all heads of a sublayer, `off:enc.1.attn:0` one, `off:enc.1.mlp`. */
const switches = ({ shapes, heads }) => Object.keys(shapes).flatMap(name => {
  const [, site, what] = /^mean\.(.*)\.(z|mlp_out)$/.exec(name) ?? []
  return what === 'z' ? [`off:${site}`, ...many(heads, h => `off:${site}:${h}`)] : site ? [`off:${site}.mlp`] : []
})
/** Every intervention for which some network of the page has the place; a step without its amount. */
const places = networks.flatMap(({ stream }) => stream.flatMap(site => POSITIONS.map(name => `${site}:${name}`)))
const interventions = new Set(['encoder', 'tokens', ...ANSWER.map(name => `invert:${name}`),
  ...networks.flatMap(switches), ...places.flatMap(at => [`exchange:${at}`, `steer:${at}:carry`, `steer:${at}:value`])])

function isAction(text) {
  const end = text.startsWith('steer') ? text.lastIndexOf(':') : text.length
  return interventions.has(text.slice(0, end)) && Math.abs(text.slice(end + 1)) <= task.base ** task.width
}

/** The state that an address describes; what it leaves out stays, except interventions. */
function readAddress(hash) {
  const next = { ...state, actions: [] }
  for (const [key, text] of new URLSearchParams(hash.slice(1))) {
    const i = task.operand_names.indexOf(key)
    if (i >= 0) next.pair = next.pair.with(i, readNumber(text, i))
    else if (hidden && key === 'seed') Object.assign(next, newGame(readSeed(text)))
    else if (hidden) throw Error(`"${key.slice(0, 20)}" is no key.`)
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
  const items = hidden ? { seed: state.seed } : { net: state.nets.map(i => labels[i]).join('|') }
  if (hidden) return addressOf(items)
  if (state.actions.length) items.do = state.actions.join(';')
  if (state.actions.some(action => action.startsWith('exchange'))) items.from = state.other.join(',')
  if (state.shown < ANSWER.length) items.shown = state.shown
  return addressOf(items)
}

const addressOf = items =>
  `#${new URLSearchParams([...state.pair.map((x, i) => [task.operand_names[i], x]), ...Object.entries(items)])}`

/** The row of x that a position has at a site, or undefined: in a decoder the answer's positions are the last ones. */
function rowOf(x, site, position) {
  const t = ANSWER.indexOf(position)
  if (t >= 0) return inEncoder(site) ? undefined : x.rows - ANSWER.length + t
  return inEncoder(site) || x.rows > ANSWER.length ? PROMPT.indexOf(position) : undefined
}

/** An intervention as pairs of a site and a change, f(row, t) -> row; none if this network lacks the place. */
function compile(net, action, prompt, source) {
  const [kind, site, position, along, amount] = action.split(':'), { weights, config } = net, layers = net.layers('enc')
  if (kind === 'encoder') return layers.flatMap(layer => compile(net, `off:${layer}.attn`))
  if (kind === 'tokens') {
    const vectors = weights[`tokens.${layers.at(-1)}`]
    return layers.slice(-1).map(name => [name, (_, t) => row(vectors, t * vectors.rows / prompt.length + prompt[t])])
  }
  if (kind === 'off') {
    const name = [`${site}.z`, `${site}_out`].find(output => weights[`mean.${output}`]), mean = weights[`mean.${name}`]
    const off = c => position === undefined || Math.floor(c * config.heads / mean.cols) === Number(position)
    return mean ? [[name, (values, t) => values.map((value, c) => (off(c) ? row(mean, t)[c] : value))]] : []
  }
  const from = source.sites[site], place = from && rowOf(from, site, position)
  const direction = weights[`${along}.${site}`], index = ANSWER.indexOf(position)
  if (place === undefined || (kind === 'steer' && (!direction || index < 0))) return []
  const moved = values => values.map((value, c) => value + amount * row(direction, index)[c])
  return [[site, (values, t) => (t !== place ? values : kind === 'steer' ? moved(values) : row(from, t))]]
}

/** Run a network: what it writes and what its sites give, with interventions and their second pair. */
function run(net, pair, actions = [], other = pair) {
  const prompt = promptOf(pair), source = actions.length && run(net, other), sites = {}
  const inside = actions.filter(action => !action.startsWith('invert'))
  const made = inside.map(action => compile(net, action, prompt, source))
  const missing = inside.filter((_, i) => !made[i].length)
  const at = (site, x) => (sites[site] = made.flat().filter(([place]) => place === site)
    .reduce((y, [, change]) => stack(y.rows, y.cols, t => change(row(y, t), t)), x))
  const invert = (token, t) => (actions.includes(`invert:${ANSWER[t]}`)
    ? (token - ZERO + 1 + task.base) % task.base + ZERO : token)
  return { sites, missing, ...write(net, prompt, completionOf(pair), at, invert) }
}

const changed = (trace, before) => ANSWER.filter((_, t) => trace.tokens[t] !== before.tokens[t])

/** Do the interventions change other pairs, too? The same 100 each time, and sources for patches. */
async function sample() {
  let seed = 1
  const draw = () => task.shape.map(size => (seed = seed * 48271 % 2147483647) % size)
  const pairs = many(100, () => [draw(), draw()]), asked = views, said = []
  for (const { net, label } of asked) {
    const changes = []
    let right = 0
    for (const [n, [pair, other]] of pairs.entries()) {
      if (n % 5 === 0) {
        $('sampled').textContent = `${label}: ${n} of ${pairs.length} pairs …`
        await new Promise(done => setTimeout(done))
        if (asked !== views) return
      }
      const trace = run(net, pair, state.actions, other)
      changes.push(...changed(trace, run(net, pair)))
      right += isRight(trace.tokens, pair)
    }
    const counts = ANSWER.filter(name => changes.includes(name))
      .map(name => `${name} in ${changes.filter(other => other === name).length}`)
    said.push(`${label}: ${right} right; changed: ${counts.join(', ') || 'none'}.`)
  }
  await update({ sampled: `Of 100 random pairs: ${said.join(' ')}` })
}

/** An element with properties of the DOM, such as className, ariaLabel and onclick; it leaves out empty children. */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties, { properties })
  made.append(...children.flat(Infinity).filter(Boolean))
  return made
}

/** Make an element like a new one. What stays in it keeps its focus, what is typed or dragged, and announcements. */
function become(old, made) {
  const typed = old === document.activeElement && old.matches('input') ? { value: old.value } : {}
  for (const name of old.getAttributeNames()) if (!made.hasAttribute(name)) old.removeAttribute(name)
  for (const name of made.getAttributeNames()) old.setAttribute(name, made.getAttribute(name))
  Object.assign(old, made.properties, typed)
  const kept = [...old.childNodes], children = [...made.childNodes]
  children.forEach((child, i) => {
    const there = kept[i]
    if (!there) old.append(child)
    else if (child.properties && there.nodeName === child.nodeName && there.id === child.id) become(there, child)
    else if (!child.data || child.data !== there.data) there.replaceWith(child)
  })
  for (const left of kept.slice(children.length)) left.remove()
}

const line = (...children) => element('div', { className: 'line' }, ...children)
const soft = (...children) => element('p', { className: 'soft' }, ...children)
const button = (id, text, onclick, more = {}) => element('button', { id, onclick, ...more }, text)
const complaint = key => element('p', { id: `${key}-error`, className: 'error', role: 'alert' }, state.errors[key])

function select(id, label, values, words, chosen, choose = value => update({ [id]: value })) {
  const options = values.map(value => element('option', { value, selected: value === chosen }, words(value)))
  const onchange = ({ target }) => choose(values[target.selectedIndex])
  return element('label', {}, `${label} `, element('select', { id, onchange }, options))
}

/** Two numbers, typed or changed digit by digit. */
function drawOperands(key) {
  const pair = state[key]
  const change = (i, text) => attempt(key, () => ({ [key]: pair.with(i, readNumber(String(text), i)) }))
  return task.operand_names.map((name, i) => {
    const digits = digitsOf(pair[i], task.bits), places = ordered([...digits.keys()], task.prompt_order)
    const box = element('input', { id: `${key}-${i}`, inputMode: 'numeric', value: pair[i],
      autocomplete: 'off', oninput: ({ target }) => change(i, target.value) })
    box.setAttribute('aria-describedby', `${key}-error`)
    const bits = places.map(place => button(`${key}-${i}-${place}`, digits[place].toString(16),
      () => change(i, pair[i] + ((digits[place] + 1) % task.base - digits[place]) * task.base ** place),
      { title: `${name}${place}`, ariaLabel: `${name}${place} is ${digits[place]}. Change it` }))
    const group = { className: 'bits', role: 'group', ariaLabel: `digits of ${name}, as the network reads them` }
    return line(element('label', {}, `${name} `, box), element('div', group, bits))
  })
}

const most = task.shape.map(size => size - 1), ripple = (4 ** Math.ceil(task.bits / 2) - 1) / 3
const CARRY_SITE = 'dec.5.resid_mid_cross' // where steering the carry changed most tokens in Transformers of six layers
/** Texts, and changes of the plain state, for a network. */
const presetsOf = ({ stream, missed }) => [
  task.name === 'add' && task.base === 2 &&
    ['The carry that ripples through all bits', { pair: [ripple, task.shape[1] - ripple] }],
  most.length === 2 && [`${most[0]} ${task.operator} 1`, { pair: [most[0], Math.min(1, most[1])] }],
  ['A wrong prefix', { actions: [`invert:${ANSWER[1]}`] }],
  stream.some(inEncoder) && ['Without the encoder', { actions: ['tokens'] }],
  task.name === 'add' && stream.includes(CARRY_SITE) && [`A carry into ${MIDDLE} that is not there`,
    { pair: [example(0)[0], 0], site: CARRY_SITE, position: MIDDLE, along: 'carry', actions: [`steer:${CARRY_SITE}:${MIDDLE}:carry:1`] }],
  missed && [`Its worst token: ${missed.position}, wrong in ${percent(missed.wrong)} of the pairs held out`,
    { pair: missed.pair, position: missed.position }],
].filter(Boolean)

/** Keys of the grid: rows down, positions along. */
const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Enter: [0, 0], ' ': [0, 0] }

function drawInput() {
  const [first, second = ''] = state.nets, nets = [...labels.keys()], text = i => labels[i] ?? 'none'
  const chips = state.actions.map(action => button(`chip-${action}`, `${actionWords(action)} ✕`, () => toggle(action),
    { ariaLabel: `Remove: ${actionWords(action)}` }))
  return element('section', { ariaLabel: 'Input' },
    element('div', { id: 'operands' }, drawOperands('pair')), complaint('pair'),
    !hidden && line('Try: ', presetsOf(networks[first]).map(([text, change], i) =>
      button(`try-${i}`, text, () => update({ ...plain, ...change })))),
    !hidden && line(select('net0', 'Network', nets, text, first, i => update({ nets: state.nets.with(0, i) })),
      select('net1', 'Beside it', ['', ...nets], text, second, i => update({ nets: i === '' ? [first] : [first, i] }))),
    line(button('back', '◀', () => step(-1), { disabled: state.shown === 0, ariaLabel: 'One token back' }),
      button('forth', '▶', () => step(1), { disabled: state.shown === ANSWER.length, ariaLabel: 'Write one more token' }),
      button('play', playing ? 'Pause' : 'Play', play, { ariaPressed: Boolean(playing) })),
    element('div', { className: 'line', role: 'group', ariaLabel: 'Interventions at work', hidden: !chips.length },
      chips, button('sample', 'Try them on 100 random pairs', sample),
      button('clear', 'Remove all', () => update({ actions: [] })),
      element('span', { id: 'sampled', ariaLive: 'polite' }, state.sampled)))
}

const unwritten = name => `${name} is not written yet`
const tell = (column, words) => { $(`detail-${column}`).textContent = words }

function drawAnswer({ trace, before, column }) {
  const right = completionOf(state.pair)
  return element('div', { className: 'answer' }, ANSWER.map((name, t) => {
    const token = trace.tokens[t], was = before.tokens[t], read = trace.read[t], hidden = t >= state.shown
    const chance = percent(softmax(row(trace.logits, t))[token]), verdict = token === right[t] ? 'right' : 'wrong'
    const words = `${name} is ${symbol(token)}, probability ${chance}, ${verdict}` +
      (token === was ? '' : `; ${symbol(was)} without the interventions`) +
      (token === read ? '' : `; later positions read ${symbol(read)}`) + '. Invert for later positions'
    const title = hidden ? unwritten(name) : words, text = symbol(token) + (token === read ? '' : `→${symbol(read)}`)
    const look = { title, ariaLabel: title, ariaPressed: token !== read,
      className: hidden ? '' : verdict + (token === was ? '' : ' changed') }
    return element('div', { className: 'soft' }, name,
      button(`answer-${column}-${t}`, hidden ? '·' : text, () => toggle(`invert:${name}`), look), hidden ? ' ' : chance)
  }))
}

function drawVerdict({ trace, before }) {
  const asked = `${task.name}: ${joined(state.pair)} = `, good = isRight(trace.tokens, state.pair)
  if (state.shown < ANSWER.length) return `${asked}… (${state.shown} of ${ANSWER.length} tokens written)`
  const said = good ? '✓ right' : `✗ wrong, it is ${valueOf(completionOf(state.pair))}`, tokens = changed(trace, before).join(', ')
  const change = tokens ? `change ${tokens}; without them ${valueOf(before.tokens)}` : 'change no token'
  return element('p', {}, `${asked}${valueOf(trace.tokens)} `,
    element('strong', { className: good ? 'right' : 'wrong' }, said),
    state.actions.length && `. The interventions ${change}.`,
    trace.missing.length && ` This network has no place for: ${trace.missing.map(actionWords).join('; ')}.`)
}

/** What the network's own head reads from the stream after each sublayer, and that of a cell in words. */
function drawLens({ net, trace, column }) {
  const lens = net.config.stream.filter(site => !inEncoder(site)).map(site => {
    const logits = net.head(lastRows(trace.sites[site], ANSWER.length))
    const chances = ANSWER.map((_, t) => softmax(row(logits, t)))
    return { site, chances, tokens: chances.map(argmax) }
  })
  const chosen = [lens.findIndex(({ site }) => site === state.site), ANSWER.indexOf(state.position)]
  const since = trace.tokens.map((token, t) => // where the head reads the final token from there on
    Math.min(lens.findLastIndex(({ tokens }) => tokens[t] !== token) + 1, lens.length - 1))
  const words = (at, t) => (t >= state.shown ? unwritten(ANSWER[t])
    : `After ${siteWords(lens[at].site)}, the head reads ${symbol(lens[at].tokens[t])} at ${ANSWER[t]}, probability ` +
      `${percent(lens[at].chances[t][lens[at].tokens[t]])}. ${ANSWER[t]} is decided after ` +
      `${siteWords(lens[since[t]].site)}: from there on it reads ${symbol(trace.tokens[t])}.`)
  const cell = ({ site, tokens, chances }, at, t) => element('td', {
    id: `lens-${column}-${site}-${t}`, role: 'gridcell', ariaLabel: words(at, t),
    ariaSelected: String([at, t]) === String(chosen),
    className: t >= state.shown || at < since[t] ? '' : at > since[t] ? 'settled' : 'decided settled',
    style: t >= state.shown ? '' : `background: rgb(var(--blue) / ${(0.45 * chances[t][tokens[t]] ** 1.5).toFixed(3)})`,
    tabIndex: at === Math.max(chosen[0], 0) && t === Math.max(chosen[1], 0) ? 0 : -1, // arrows lead on
    onclick: () => update({ site, position: ANSWER[t] }), onmouseenter: () => tell(column, words(at, t)),
  }, t >= state.shown ? ' ' : symbol(tokens[t]))
  const heading = (scope, text, title = '') => element('th', { scope, title }, text)
  const rows = lens.map((entry, at) => element('tr', {}, heading('row', siteShort(entry.site), siteWords(entry.site)),
    ANSWER.map((_, t) => cell(entry, at, t))))
  const detail = chosen.includes(-1) || chosen[1] >= state.shown
    ? 'Point at a cell or choose it: what it says in words.' : words(...chosen)
  const caption = `What the head reads after each sublayer: a digit, s (start), ${task.operator} or . (filler). ` +
    'The bluer, the more certain. The green line: decided from here on.'
  return [element('table', { role: 'grid', onkeydown: moveChoice }, element('caption', {}, caption),
    element('tr', {}, heading('col', 'after'), ANSWER.map(name => heading('col', name))), rows),
  element('p', { id: `detail-${column}`, className: 'soft detail', ariaLive: 'polite' }, detail)]
}

function moveChoice(event) {
  const [down, along] = KEYS[event.key] ?? [], { target, currentTarget } = event
  const cell = currentTarget.rows[target.parentElement.rowIndex + down]?.cells[target.cellIndex + along]
  if (!cell?.matches('td')) return
  event.preventDefault()
  cell.focus()
  cell.click()
}

/** The heads' maps, the strongest at the chosen position first. */
function drawHeads(view) {
  const maps = Object.entries(view.trace.sites).filter(([name]) => name.includes('.pattern.')).map(([name, x]) => {
    const [site, h] = name.split('.pattern.'), t = rowOf(x, site, state.position)
    const seen = t === undefined ? [] : row(x, t).filter(weight => weight > 0)
    return { site, h, x, t, strongest: seen.length > 1 ? Math.max(...seen) : 0 }
  }).sort((one, other) => other.strongest - one.strongest)
  const caption = `Each head's weights: rows look at columns, in the order of the tokens. In orange ` +
    `${state.position}, where the first heads are strongest. Click a head to turn it off.`
  const shown = maps.slice(0, state.allHeads ? maps.length : 12).map(map => drawHead(view, map))
  const more = state.allHeads ? 'Show the strongest 12' : `Show all ${maps.length} heads`
  return [soft(caption), element('div', { className: 'heads' }, shown),
    maps.length > 12 && button(`more-${view.column}`, more, () => update({ allHeads: !state.allHeads }))]
}

/** A map: a row looks, a column is looked at. */
function drawHead({ column }, { site, h, x, t }) {
  const lookers = inEncoder(site) ? PROMPT : [...PROMPT, ...ANSWER].slice(-x.rows)
  const seen = /enc|cross/.test(site) ? PROMPT : [...PROMPT, '<s>', ...ANSWER].slice(-x.cols - 1, -1)
  const words = (from, to) =>
    `${headWords(site, h)}: ${lookers[from]} looks at ${seen[to]} with weight ${percent(row(x, from)[to])}.`
  const canvas = element('canvas', { width: x.cols, height: x.rows, onmousemove: ({ offsetX, offsetY }) => {
    const cell = (offset, size, count) => Math.min(Math.trunc(offset / size * count), count - 1)
    tell(column, words(cell(offsetY, canvas.clientHeight, x.rows), cell(offsetX, canvas.clientWidth, x.cols)))
  } })
  delete canvas.properties // always replaced: what is painted is no property
  const context = canvas.getContext('2d'), style = getComputedStyle(document.body)
  x.data.forEach((weight, i) => {
    const from = Math.floor(i / x.cols), own = from === t, colour = style.getPropertyValue(own ? '--mark' : '--blue')
    context.fillStyle = `rgb(${colour} / ${own ? Math.max(weight, 0.15) : weight})`
    context.fillRect(i % x.cols, from, 1, 1)
  })
  const summary = t === undefined ? `${headWords(site, h)}.` : words(t, argmax(row(x, t)))
  const action = `off:${site}:${h}`, off = state.actions.includes(action)
  return element('button', {
    id: `head-${column}-${site}-${h}`, ariaPressed: off, ariaLabel: `${summary} Turn it ${off ? 'on' : 'off'}`,
    onclick: () => toggle(action), onfocus: () => tell(column, summary),
  }, canvas, `${off ? '✗ ' : ''}${siteShort(site)} ${h}`)
}

function drawView(view) {
  const { net, label } = view, { name, parameters, heads, kind } = net.config, layers = net.layers('dec').length
  return element('article', { ariaLabel: label }, element('h2', { title: name }, label),
    soft(`${kind}, ${parameters.toLocaleString('en')} parameters, ${layers} layers, ${heads} heads`),
    drawAnswer(view), element('div', { ariaLive: 'polite' }, drawVerdict(view)),
    !sealed() && [element('h3', {}, 'When is each token decided?'), drawLens(view),
      element('h3', {}, 'Attention'), drawHeads(view)])
}

/** An intervention: its controls, and what was found about it over all pairs, in networks like those in view. */
function drawTool(kind, title, ...controls) {
  const said = [...new Set(views.map(({ net }) => net.config.found[kind]))].filter(Boolean)
  const link = data.sections[kind] &&
    element('a', { href: data.docs + data.sections[kind], target: '_blank' }, 'How it was measured')
  return [element('h3', {}, title), controls, said.length && soft(`${said.join(' ')} `, link)]
}

function drawTools() {
  const { config } = views[0].net, { site, position, actions } = state, encoder = config.stream.some(inEncoder)
  const parts = [...(encoder ? ['encoder'] : []), ...switches(config)]
  const part = parts.includes(state.part) ? state.part : parts[0]
  const directions = ['carry', 'value'].filter(name => config.shapes[`${name}.${config.stream.at(-1)}`])
  const along = directions.includes(state.along) ? state.along : 'value', carry = along === 'carry'
  const steering = `steer:${site}:${position}:${along}:`, most = carry ? 3 : task.base ** (task.width - 2)
  const rest = actions.filter(action => !action.startsWith(steering))
  const at = actions.find(action => action.startsWith(steering))?.slice(steering.length) ?? 0
  const amount = hidden ? Math.max(-most, Math.min(most, state.amount)) : at
  const steerBy = value => update({ actions: Number(value) ? [...rest, steering + value] : rest })
  const steer = ({ target: { value } }) => (hidden ? update({ amount: value }) : steerBy(value))
  const slider = element('input',
    { id: 'amount', type: 'range', min: -most, max: most, step: carry ? 0.25 : 1, value: amount, oninput: steer })
  const operators = task.prompt_places.filter(([, digit]) => digit < 0).length
  const vectors = task.shape.length * task.bits * task.base + operators
  return element('section', { ariaLabel: 'Interventions' }, element('h2', {}, 'Change something inside'),
    line(select('site', 'Place: after', config.stream, siteWords, site),
      select('position', 'at', POSITIONS, name => name, position),
      !sealed() && element('span', { className: 'soft' }, 'or choose a cell of a table above')),
    drawTool('invert', 'Invert an answer token',
      element('p', {}, 'Click a token of the answer. The positions after it read the other digit.')),
    drawTool('exchange', 'Patch from another pair\'s run', line(drawOperands('other')), complaint('other'),
      line(button('exchange', 'Patch this place', () => toggle(`exchange:${site}:${position}`)))),
    drawTool('off', 'Turn a part off',
      line(select('part', 'Part', parts, action => actionWords(action).replace(' off', ''), part),
        button('off', 'Replace by its mean', () => toggle(part)))),
    encoder && drawTool('tokens', 'Replace the encoder by a list of vectors',
      line(button('tokens', `One vector for each token and place: ${vectors} in all`, () => toggle('tokens'),
        { ariaPressed: actions.includes('tokens') }))),
    directions.length > 0 && drawTool('steer', 'Steer along a direction',
      line(select('along', 'Of', directions, name => (name === 'carry' ? 'the carry' : 'the answer'), along),
        element('label', {}, 'by ', slider, element('output', {}, stepWords(amount, along))),
        hidden && button('steer', 'Steer', () => steerBy(amount)))))
}

function draw() {
  const { id } = document.activeElement
  become($('page'), element('main', { id: 'page' }, element('h1', {}, document.title),
    hidden ? gameIntro() : soft(`Networks for the task ${task.name}, ${task.bits} ${task.digit_noun}. They write the ` +
      `answer to ${joined(task.operand_names)} token by token, computed here with their own weights. Type numbers, ` +
      'step through the answer, change something inside.'),
    complaint('address'), drawInput(),
    element('div', { id: 'columns' }, views.map(drawView), hidden && drawGame()), drawTools()))
  if (id) ($(id) ?? $('another'))?.focus() // a head that has moved; a choice is gone once it is made
}

const sealed = () => hidden && !state.named
const toggle = action => update({ actions: state.actions.includes(action)
  ? state.actions.filter(other => other !== action) : [...state.actions, action] })

async function update(asked) {
  const changes = hidden ? counted(asked) : asked
  state = { ...state, sampled: '', ...changes }
  state.shown = Math.min(Math.max(state.shown, 0), ANSWER.length)
  for (const i of state.named ? networks.keys() : state.nets) {
    loaded[i] ??= new { Transformer, NanoGPT }[networks[i].kind](networks[i], await unpack(networks[i]))
  }
  const sites = networks[state.nets[0]].stream, decoder = sites.filter(site => !inEncoder(site))
  if (!sites.includes(state.site)) state.site = decoder[Math.floor(decoder.length / 2)]
  views = state.nets.map((i, column) => ({ label: hidden ? gameLabel() : labels[i], column, net: loaded[i],
    before: run(loaded[i], state.pair), trace: run(loaded[i], state.pair, state.actions, state.other) }))
  draw()
  // a frame in a notebook has no address of its own
  if (location.protocol !== 'about:') history.replaceState(null, '', address())
}

/** Change the state. If `make` refuses, show its message beside the control, and keep the last good state. */
const attempt = (where, make, before = '') => new Promise(done => done(make()))
  .then(changes => [changes, ''], ({ message }) => [{}, before + message])
  .then(([changes, said]) => update({ ...changes, errors: { ...state.errors, [where]: said } }))
const followAddress = () => attempt('address', () => readAddress(location.hash), 'The address was not followed. ')
const step = count => update({ shown: state.shown + count })

function play() {
  clearInterval(playing)
  playing = playing ? undefined : setInterval(() => (state.shown < ANSWER.length ? step(1) : play()), 700)
  update({ shown: playing && state.shown === ANSWER.length ? 0 : state.shown })
}

if (hidden) document.title = 'Find the algorithm'
addEventListener('hashchange', followAddress)
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw)
// milliseconds from opening the page to the first answer
followAddress().then(() => { document.body.dataset.ready = performance.now() })
