// What one sees and does. The state is in the address; every change runs the networks again and draws everything anew.
// Text from outside enters the page as text only.

const data = JSON.parse(document.getElementById('data').textContent)
const { task } = data
const OPERANDS = task.operand_names.length
const $ = id => document.getElementById(id)
const loaded = [] // networks that have been unpacked
const clean = new Map() // runs without interventions
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

// --- numbers and tokens ---

const digitsOf = (value, count) => Array.from({ length: count }, (_, i) => Math.floor(value / task.base ** i) % task.base)
const ordered = (digits, order) => (order === 'reverse' ? digits : [...digits].reverse())
const symbol = token => (token === START ? 's' : token === 2 ? task.operator : token > 2 ? (token - ZERO).toString(16) : '.')
const percent = share => (share > 0.9995 || share < 0.0005 ? `${Math.round(share * 100)}%` : `${(share * 100).toFixed(1)}%`)
const answerOf = pair => answers.data[pair.reduce((index, x, i) => index * task.shape[i] + x, 0)]
const completionOf = pair => ordered(digitsOf(answerOf(pair), task.width), task.completion_order).map(d => d + ZERO)
const valueOf = tokens => ordered(tokens, task.completion_order)
  .reduce((sum, token, i) => sum + (token >= ZERO ? token - ZERO : 0) * task.base ** i, 0)

function promptOf(pair) {
  const parts = pair.map(x => ordered(digitsOf(x, task.bits), task.prompt_order).map(digit => digit + ZERO))
  return parts.flatMap((part, i) => (i ? [2, ...part] : part))
}

function readNumber(text, i) {
  const value = Number(text)
  if (/^\s*\d+\s*$/.test(text) && value < task.shape[i]) return value
  throw Error(`${task.operand_names[i]} = "${text.slice(0, 20)}": expected a whole number from 0 to ${task.shape[i] - 1}.`)
}

// --- state and address ---

const first = value => Array.from({ length: OPERANDS }, (_, i) => Math.min([27, 100, 1][i] + value, task.shape[i] - 1))
let state = {
  pair: first(0), other: first(1), nets: [0, data.networks.length > 1 ? data.networks.length - 1 : -1], actions: [], shown: task.width,
  site: undefined, position: task.answer_names[Math.floor(task.width / 2)],
}

const WORDS = { attn: 'self-attention', cross_attn: 'cross-attention', mlp: 'feed-forward' }
const written = action => Object.values(action).join(':')
const shortName = name => name.replace(/-seed[^-]*-[0-9a-f]{8}$/, '')
const fullLabel = ({ name, seed }) => `${name}, seed ${seed}`
const shortLabel = ({ name, seed }) => `${shortName(name)}, seed ${seed}`
const labels = data.networks.map(info => (data.networks.filter(other => shortLabel(other) === shortLabel(info)).length > 1
  ? fullLabel(info) : shortLabel(info)))
const label = i => labels[i]

function siteWords(site) {
  const [, side, layer, rest] = /^(enc|dec)\.(\d+)\.?(.*)$/.exec(site)
  const part = { '': 'feed-forward', resid_mid: 'self-attention', resid_mid_cross: 'cross-attention' }[rest] ?? WORDS[rest]
  return `${side === 'enc' ? 'encoder' : 'decoder'} layer ${layer}, ${part}`
}

const actionWords = ({ kind, site, position, head, along, amount }) => ({
    invert: () => `${position} inverted for later positions`,
    exchange: () => `${position} after ${siteWords(site)} from ${state.other.join(` ${task.operator} `)}`,
    off: () => `${siteWords(site)}${head === undefined ? '' : `, head ${Number(head) + 1}`} off`,
    encoder: () => 'all self-attention of the encoder off',
    tokens: () => 'encoder replaced by its vectors',
    steer: () => `${position} after ${siteWords(site)} moved by ${amount} ${along === 'carry' ? 'carries' : `of the ${answerWord}`}`,
})[kind]()

/** An intervention from its text in the address, such as `steer:dec.4:r4:carry:-1`. */
function readAction(text) {
  const [kind, ...rest] = text.split(':'), streams = data.networks.flatMap(net => net.stream)
  const [site, position, along, amount] = rest
  const placed = streams.includes(site) && [...task.answer_names, ...task.prompt_names].includes(position)
  const moved = ['carry', 'value'].includes(along) && Math.abs(Number(amount)) <= task.base ** task.width
  const part = data.networks.some((_, i) => parts(i).includes(rest.join(':')))
  if (kind === 'invert' && task.answer_names.includes(site) && rest.length === 1) return { kind, position: site }
  if (kind === 'exchange' && placed && rest.length === 2) return { kind, site, position }
  if (kind === 'off' && part) return position === undefined ? { kind, site } : { kind, site, head: position }
  if (['encoder', 'tokens'].includes(kind) && !rest.length) return { kind }
  if (kind === 'steer' && placed && moved && rest.length === 4) return { kind, site, position, along, amount }
  throw Error(`do: "${text.slice(0, 40)}" is no intervention of these networks.`)
}

/** The state that an address describes; what it leaves out stays. */
function readAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, '')), next = { ...state, actions: [] }
  const numbers = (texts, was) => was.map((old, i) => (texts[i] === undefined ? old : readNumber(texts[i], i)))
  for (const key of given.keys()) {
    if (![...task.operand_names, 'net', 'do', 'from', 'shown'].includes(key)) throw Error(`"${key.slice(0, 20)}" is no key.`)
  }
  next.pair = numbers(task.operand_names.map(name => given.get(name) ?? undefined), state.pair)
  next.other = numbers(given.get('from')?.split(',') ?? [], state.other)
  if (given.has('do')) next.actions = given.get('do').split(';').filter(Boolean).map(readAction)
  if (given.has('net')) {
    const nets = given.get('net').split('|').map(name => data.networks.findIndex((_, i) => label(i) === name))
    if (nets.length > 2 || nets.includes(-1)) throw Error(`net: "${given.get('net').slice(0, 60)}" is not in this page.`)
    next.nets = [nets[0], nets[1] ?? -1]
  }
  if (given.has('shown')) next.shown = Math.min(Math.max(Math.round(Number(given.get('shown'))) || 0, 0), task.width)
  return next
}

function address() {
  const items = [...state.pair.map((x, i) => [task.operand_names[i], x]), ['net', state.nets.filter(i => i >= 0).map(label).join('|')]]
  if (state.actions.length) items.push(['do', state.actions.map(written).join(';')])
  if (state.actions.some(action => action.kind === 'exchange')) items.push(['from', state.other.join(',')])
  if (state.shown < task.width) items.push(['shown', state.shown])
  return `#${new URLSearchParams(items)}`
}

// --- running ---

async function load(i) {
  const info = data.networks[i], tensors = await unpack(info.weights)
  loaded[i] ??= { info, tensors, network: new { Transformer, NanoGPT }[info.kind](info, tensors) }
  return loaded[i]
}

/** What can be turned off: `enc.1.attn` all heads of a sublayer, `enc.1.attn:0` one of them, `enc.1.mlp`. */
function parts(i) {
  const { weights, heads } = data.networks[i]
  return weights.shapes.map(([name]) => /^mean\.(.*)\.(z|mlp_out)$/.exec(name)).filter(Boolean).flatMap(([, site, what]) =>
    what === 'z' ? [site, ...Array.from({ length: heads }, (_, h) => `${site}:${h}`)] : [`${site}.mlp`])
}

/** The row of x that a position has at a site, or undefined: in a decoder the answer's positions are the last ones. */
function rowOf(x, site, position) {
  const t = task.answer_names.indexOf(position), place = task.prompt_names.indexOf(position)
  if (t >= 0) return site.startsWith('enc') ? undefined : x.rows - task.width + t
  return site.startsWith('enc') || x.rows > task.width ? place : undefined
}

/** Interventions as functions by site; null for what this network does not have. */
function compile(net, action, prompt, source) {
  const { tensors, info } = net, { kind, site, position } = action
  const encoders = info.stream.filter(name => /^enc\.\d+$/.test(name))
  const average = (mean, from, to) => x => {
    for (let t = 0; t < x.rows; t++) for (let c = from; c < to; c++) x.data[t * x.cols + c] = row(mean, t)[c]
  }
  const mean = name => ({ data: tensors[`mean.${name}`].data, cols: tensors[`mean.${name}`].shape[1] })
  if (kind === 'off') {
    const name = site.endsWith('.mlp') ? `${site}_out` : `${site}.z`
    if (!tensors[`mean.${name}`]) return null
    const whole = mean(name), size = whole.cols / info.heads, head = Number(action.head)
    return { [name]: average(whole, ...(action.head === undefined ? [0, whole.cols] : [head * size, (head + 1) * size])) }
  }
  if (kind === 'encoder') {
    const names = encoders.map(layer => `${layer}.attn.z`).filter(name => tensors[`mean.${name}`])
    return names.length ? Object.fromEntries(names.map(name => [name, average(mean(name), 0, mean(name).cols)])) : null
  }
  if (kind === 'tokens') {
    const last = encoders.at(-1)
    if (!last) return null
    const { data: vectors, shape: [, V, C] } = tensors[`tokens.${last}`]
    const vector = (t, token) => vectors.subarray((t * V + token) * C, (t * V + token + 1) * C)
    return { [last]: x => prompt.forEach((token, t) => x.data.set(vector(t, token), t * C)) }
  }
  if (!info.stream.includes(site)) return null
  if (kind === 'exchange') {
    const from = source.stream[site], t = rowOf(from, site, position)
    return t === undefined ? null : { [site]: x => row(x, t).set(row(from, t)) }
  }
  const direction = tensors[`${action.along}.${site}`], t = task.answer_names.indexOf(position)
  if (!direction || t < 0) return null
  return { [site]: x => {
    const values = row(x, rowOf(x, site, position))
    for (let c = 0; c < x.cols; c++) values[c] += action.amount * direction.data[t * x.cols + c]
  } }
}

/** Run a network: what it writes and what happens inside, with interventions. */
function run(net, pair, actions, source) {
  const prompt = promptOf(pair), bySite = {}, forced = {}, missing = []
  const trace = { stream: {}, patterns: {}, missing }
  for (const action of actions) {
    if (action.kind === 'invert') continue
    const made = compile(net, action, prompt, source)
    if (!made) missing.push(actionWords(action))
    for (const [site, change] of Object.entries(made ?? {})) (bySite[site] ??= []).push(change)
  }
  const at = intervening(bySite, (site, x) => {
    if (site.endsWith('.pattern')) trace.patterns[site.slice(0, -8)] = x
    else if (net.info.stream.includes(site)) trace.stream[site] = { ...x, data: x.data.slice() }
  })
  let result = write(net.network, prompt, completionOf(pair), at)
  for (const t of task.answer_names.keys()) { // in order: what is inverted depends on what was inverted before it
    if (!actions.some(action => action.kind === 'invert' && action.position === task.answer_names[t])) continue
    forced[t] = (result.tokens[t] - ZERO + 1 + task.base) % task.base + ZERO
    result = write(net.network, prompt, completionOf(pair), at, forced)
  }
  return Object.assign(trace, result, { pair, prompt })
}

function cleanRun(i, pair) {
  const key = `${i} ${pair}`
  if (!clean.has(key)) clean.set(key, run(loaded[i], pair, [])), clean.size > 40 && clean.delete(clean.keys().next().value)
  return clean.get(key)
}

/** What the network's own head reads from the stream after each sublayer: [{ site, tokens, chances }]. */
function logitLens(net, trace) {
  return net.info.stream.filter(site => site.startsWith('dec')).map(site => {
    const logits = net.network.head(lastRows(trace.stream[site], task.width))
    const chances = task.answer_names.map((_, t) => softmax([...row(logits, t)]))
    return { site, chances, tokens: chances.map(argmax) }
  })
}

// --- drawing ---

const answerWord = ['add', 'add3'].includes(task.name) ? 'sum' : 'answer'
const shade = chance => `background: rgb(var(--blue) / ${(0.45 * Math.max(chance, 0) ** 1.5).toFixed(3)})`

function drawAnswer(view) {
  const { trace, before } = view, right = completionOf(trace.pair), line = element('div', { class: 'answer' })
  for (const [t, name] of task.answer_names.entries()) {
    const token = trace.tokens[t], hidden = t >= state.shown, inverted = trace.read[t] !== token
    const chance = softmax([...row(trace.logits, t)])[token], good = token === right[t], changed = token !== before.tokens[t]
    const words = `${name} is ${symbol(token)}, probability ${percent(chance)}, ${good ? 'right' : 'wrong'}` +
      `${changed ? `; ${symbol(before.tokens[t])} without the interventions` : ''}` +
      `${inverted ? `; later positions read ${symbol(trace.read[t])}` : ''}. Invert for later positions`
    const button = element('button', {
      'aria-label': hidden ? `${name} is not written yet` : words, 'aria-pressed': inverted, title: hidden ? undefined : words,
      class: hidden ? '' : `${good ? 'right' : 'wrong'}${changed ? ' changed' : ''}`,
      'data-key': `answer ${view.column} ${t}`, onclick: () => toggle({ kind: 'invert', position: name }),
    }, hidden ? '·' : inverted ? `${symbol(token)}→${symbol(trace.read[t])}` : symbol(token))
    line.append(element('div', {}, element('div', { class: 'name' }, name), button,
      element('div', { class: 'chance' }, hidden ? ' ' : percent(chance))))
  }
  return line
}

function drawVerdict({ trace, before }) {
  const wanted = answerOf(trace.pair), sum = trace.pair.join(` ${task.operator} `)
  if (state.shown < task.width) return element('p', {}, `${sum} = … (${state.shown} of ${task.width} tokens written)`)
  const value = valueOf(trace.tokens), good = trace.tokens.every((token, t) => token === completionOf(trace.pair)[t])
  const mark = element('strong', { class: good ? 'right' : 'wrong' }, good ? '✓ right' : `✗ wrong, it is ${wanted}`)
  const line = element('p', {}, `${sum} = ${value} `, mark)
  const changed = task.answer_names.filter((_, t) => trace.tokens[t] !== before.tokens[t])
  if (state.actions.length) {
    line.append(changed.length
      ? `. The interventions change ${changed.join(', ')}; without them ${valueOf(before.tokens)}.`
      : '. The interventions change no token.')
  }
  if (trace.missing.length) line.append(` This network has no place for: ${trace.missing.join('; ')}.`)
  return line
}

function lensWords(view, site, t) {
  const at = view.lens.findIndex(entry => entry.site === site), { chances, tokens } = view.lens[at]
  const since = decidedAt(view, t), name = task.answer_names[t]
  return `After ${siteWords(site)} the head reads ${symbol(tokens[t])} at ${name}, probability ${percent(chances[t][tokens[t]])}. ` +
    `${name} is decided after ${siteWords(view.lens[since].site)}: from there on it reads ${symbol(view.trace.tokens[t])}.`
}

/** The first sublayer from which on the head reads the final token. */
function decidedAt({ lens, trace }, t) {
  let since = lens.length - 1
  while (since > 0 && lens[since - 1].tokens[t] === trace.tokens[t]) since--
  return since
}

function drawLens(view) {
  const head = element('tr', {}, element('th', { scope: 'col' }, 'after'),
    ...task.answer_names.map(name => element('th', { scope: 'col' }, name)))
  const rows = view.lens.map(({ site, tokens, chances }, at) => {
    const short = `${/\d+/.exec(site)[0]} ${{ resid_mid: 'self', resid_mid_cross: 'cross' }[site.split('.')[2]] ?? 'mlp'}`
    return element('tr', {}, element('th', { scope: 'row', title: siteWords(site) }, short), ...tokens.map((token, t) => {
      const since = decidedAt(view, t), chosen = site === state.site && task.answer_names[t] === state.position
      const style = t < state.shown ? ` ${at === since ? 'decided' : ''} ${at >= since ? 'settled' : ''}` : 'hidden'
      return element('td', {
        role: 'gridcell', class: style, style: shade(chances[t][token]), tabindex: chosen ? 0 : -1, 'aria-selected': chosen,
        'aria-label': lensWords(view, site, t), 'data-key': `lens ${view.column} ${site} ${t}`,
        onclick: () => choose(site, task.answer_names[t]), onkeydown: event => moveChoice(event, view, at, t),
        onmouseenter: () => { view.detail.textContent = lensWords(view, site, t) },
      }, t < state.shown ? symbol(token) : ' ')
    }))
  })
  if (!view.lens.some(({ site }) => site === state.site)) rows[0].children[1].tabIndex = 0
  const caption = 'What the head reads after each sublayer. The green line: decided from here on. Darker: more certain.'
  return element('table', { role: 'grid', class: 'lens' }, element('caption', {}, caption), element('thead', {}, head),
    element('tbody', {}, ...rows))
}

const STEPS = { ArrowLeft: -1, ArrowRight: 1 }

function moveChoice(event, view, at, t) {
  const [down, along] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0]
  const site = view.lens[at + down]?.site, name = task.answer_names[t + along]
  const enter = ['Enter', ' '].includes(event.key)
  if (!enter && (!(down || along) || !site || !name)) return
  event.preventDefault()
  choose(site, name)
  document.querySelector(`[data-key="${CSS.escape(`lens ${view.column} ${site} ${task.answer_names.indexOf(name)}`)}"]`).focus()
}

/** The heads that look from the chosen position, the strongest first. */
function drawHeads(view) {
  const { trace, net } = view, heads = []
  const keyNames = [...task.prompt_names, '<s>', ...task.answer_names.slice(0, -1)]
  const tokens = [...trace.prompt, START, ...trace.read.slice(0, -1)], P = trace.prompt.length
  for (const [site, x] of Object.entries(trace.patterns)) {
    const t = rowOf(x, site, state.position), count = x.cols / net.info.heads
    if (t === undefined) continue
    const start = count === keyNames.length || site.startsWith('enc') || site.endsWith('cross_attn') ? 0 : P
    for (let h = 0; h < net.info.heads; h++) {
      const weights = [...row(x, t).subarray(h * count, (h + 1) * count)]
      if (weights.filter(weight => weight > 0).length > 1) heads.push({ site, h, weights, start, strongest: Math.max(...weights) })
    }
  }
  heads.sort((one, other) => other.strongest - one.strongest)
  const rows = heads.slice(0, view.all ? heads.length : 8).map(({ site, h, weights, start }) => {
    const at = weights.indexOf(Math.max(...weights)), off = { kind: 'off', site, head: String(h) }, on = isOn(off)
    const words = `${siteWords(site)}, head ${h + 1}: ${state.position} looks at ${keyNames[start + at]} with weight ${percent(weights[at])}`
    const name = `${site.startsWith('enc') ? 'enc ' : ''}${/\d+/.exec(site)[0]} ${site.endsWith('cross_attn') ? 'cross' : 'self'} h${h + 1}`
    return element('tr', { onmouseenter: () => { view.detail.textContent = `${words}.` } },
      element('th', { scope: 'row' }, element('button', {
        'aria-pressed': on, 'aria-label': `${words}. ${on ? 'Turn it on' : 'Turn it off'}`, title: `${words}. Click to turn it off.`,
        'data-key': `head ${view.column} ${site} ${h}`, onclick: () => toggle(off),
      }, `${on ? '✗ ' : ''}${name}`)),
      ...tokens.map((_, k) => element('td', {
        style: shade(weights[k - start] ?? 0), title: `${keyNames[k]}: ${percent(weights[k - start] ?? 0)}`,
      }, weights[k - start] > 0.3 ? symbol(tokens[k]) : ' ')))
  })
  const caption = `Where ${state.position} looks, the strongest heads first. A head's button turns it off.`
  const table = element('table', { class: 'heads' }, element('caption', {}, caption), element('thead', {}, element('tr', {},
    element('th', { scope: 'col' }, 'layer, head'), ...tokens.map((token, k) =>
      element('th', { scope: 'col', title: keyNames[k], 'aria-label': keyNames[k] }, symbol(token))))), element('tbody', {}, ...rows))
  const more = element('button', { 'data-key': `more ${view.column}`, onclick: () => { view.all = !view.all; draw() } },
    view.all ? 'Show the strongest 8' : `Show all ${heads.length} heads`)
  return heads.length > 8 ? [table, more] : [table]
}

function drawView(view) {
  const { info } = view.net
  const about = `${info.kind}, ${info.parameters.toLocaleString('en')} parameters, ${info.layers} layers, ${info.heads} heads`
  view.detail = element('p', { class: 'soft detail', 'aria-live': 'polite' }, 'Point at a cell or choose it: what it says in words.')
  const chosen = view.lens.some(({ site }) => site === state.site) && task.answer_names.includes(state.position)
  if (chosen) view.detail.textContent = lensWords(view, state.site, task.answer_names.indexOf(state.position))
  return element('article', { class: 'column', 'aria-label': label(view.index) }, element('h2', {}, label(view.index)),
    element('p', { class: 'soft' }, about), drawAnswer(view), element('div', { 'aria-live': 'polite' }, drawVerdict(view)),
    element('h3', {}, 'When is each token decided?'), drawLens(view), view.detail,
    element('h3', {}, 'Attention'), ...drawHeads(view))
}

function drawOperands(id, pair, key, errorId) {
  const lines = task.operand_names.map((name, i) => {
    const change = value => {
      try {
        const next = [...pair]
        next[i] = readNumber(String(value), i)
        $(errorId).textContent = ''
        update({ [key]: next })
      } catch (error) {
        $(errorId).textContent = error.message
      }
    }
    const digits = digitsOf(pair[i], task.bits), places = ordered([...digits.keys()], task.prompt_order)
    const box = element('input', { class: 'number', inputmode: 'numeric', value: pair[i], autocomplete: 'off', 'data-key': `${key} ${i}`,
      'aria-describedby': errorId, oninput: event => change(event.target.value) })
    const bits = places.map(place => element('button', {
      'aria-label': `${name}${place} is ${digits[place]}. Change it`, title: `${name}${place}`, 'data-key': `${key} ${i} ${place}`,
      onclick: () => change(pair[i] + ((digits[place] + 1) % task.base - digits[place]) * task.base ** place),
    }, digits[place].toString(16)))
    return element('div', { class: 'line' }, element('label', {}, `${name} `, box),
      element('div', { class: 'bits', role: 'group', 'aria-label': `${task.digits ?? 'digits'} of ${name}, as the network reads them` }, ...bits))
  })
  $(id).replaceChildren(...lines)
}

function range(shares) {
  const [low, high] = [Math.min(...shares), Math.max(...shares)].map(share => `${Math.round(share * 100)}%`)
  return low === high ? low : `${low} to ${high}`
}

/** One sentence for each intervention: what it does to the networks in view, over random pairs. */
function drawFindings() {
  const say = (kind, sentence) => {
    $(`found-${kind}`).textContent = views.map(({ net: { info } }) => {
      const effects = info.effects.filter(effect => effect.intervention === kind)
      return effects.length ? `${shortName(info.name)}: ${sentence(effects, Math.max(...effects.map(({ n }) => n)))}` : ''
    }).filter(Boolean).join(' ')
  }
  const best = effects => effects.reduce((one, other) => (other.changed > one.changed ? other : one))
  const early = effects => effects.find(({ changed }) => changed >= best(effects).changed - 0.05)
  say('flip', (all, n) => `it changes the next token in ${range(all.map(x => x.changed))} of ${n} random examples, by position.`)
  for (const kind of ['attention', 'tokens']) {
    const part = kind === 'tokens' ? 'With the encoder replaced' : 'With all self-attention of the encoder off'
    say(kind, (all, n) => `${part.toLowerCase()}, ${range(all.map(x => x.changed))} of the tokens change, by position, in ${n} random examples.`)
  }
  say('exchange', (all, n) => `${task.answer_names[all[0].position]} becomes the other pair's in ${percent(early(all).changed)} of ${n} ` +
    `random examples where they differ, from ${siteWords(early(all).site)} on.`)
  say('carry', (all, n) => `the other carry at ${task.answer_names[all[0].position]} turns it in ${percent(best(all).changed)} of ${n} ` +
    `random examples, at best after ${siteWords(best(all).site)}.`)
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => element('option', { value }, text)))
  select.value = chosen
}

function drawControls() {
  const nets = data.networks.map((_, i) => [String(i), label(i)]), here = loaded[state.nets[0]].info
  fill($('net0'), nets, String(state.nets[0]))
  fill($('net1'), [['-1', 'none'], ...nets], String(state.nets[1]))
  if (!here.stream.includes(state.site)) state.site = here.stream.filter(site => site.startsWith('dec'))[Math.floor(here.layers * 1.5)]
  fill($('site'), here.stream.map(site => [site, siteWords(site)]), state.site)
  fill($('position'), [...task.answer_names, ...task.prompt_names].map(name => [name, name]), state.position)
  const partWords = part => {
    const [site, head] = part.split(':')
    return [part, `${siteWords(site)}${head ? `, head ${Number(head) + 1}` : ''}`]
  }
  const encoder = here.stream.some(site => site.startsWith('enc'))
  const all = encoder ? [['encoder', 'all self-attention of the encoder']] : []
  fill($('part'), [...all, ...parts(state.nets[0]).map(partWords)], $('part').value || (encoder ? 'encoder' : parts(state.nets[0])[0]))
  $('encoder').hidden = !encoder
  const vectors = task.operand_names.length * task.bits * task.base + task.operand_names.length - 1
  $('tokens').textContent = `One vector for each token and place: ${vectors} in all`
  $('tokens').setAttribute('aria-pressed', isOn({ kind: 'tokens' }))
  const carries = here.weights.shapes.some(([name]) => name.startsWith('carry.'))
  fill($('along'), [...(carries ? [['carry', 'the carry']] : []), ['value', `the ${answerWord}`]], $('along').value || (carries ? 'carry' : 'value'))
  const place = `steer:${state.site}:${state.position}:${$('along').value}:`
  const steer = state.actions.find(action => written(action).startsWith(place))
  const most = $('along').value === 'carry' ? 3 : task.base ** (task.width - 2)
  Object.assign($('amount'), { min: -most, max: most, step: most === 3 ? 0.25 : 1, value: steer?.amount ?? 0 })
  $('amount-text').textContent = `${steer?.amount ?? 0} ${most === 3 ? 'carries' : ''}`
  $('chips').replaceChildren(...state.actions.map(action => element('li', {}, element('button', {
    'data-key': `chip ${written(action)}`, 'aria-label': `Remove: ${actionWords(action)}`, onclick: () => toggle(action),
  }, `${actionWords(action)} ✕`))), state.actions.length > 1
    ? element('li', {}, element('button', { 'data-key': 'clear', onclick: () => update({ actions: [] }) }, 'Remove all')) : '')
  $('back').disabled = state.shown === 0
  $('forth').disabled = state.shown === task.width
  $('play').textContent = playing ? 'Pause' : 'Play'
  $('play').setAttribute('aria-pressed', Boolean(playing))
}

function draw() {
  const focused = document.activeElement, key = focused?.dataset?.key, typed = focused?.value
  $('columns').replaceChildren(...views.map(drawView))
  drawOperands('operands', state.pair, 'pair', 'pair-error')
  drawOperands('others', state.other, 'other', 'other-error')
  drawControls()
  drawFindings()
  const again = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`)
  if (again && focused !== again) again.focus()
  if (again?.tagName === 'INPUT') {
    again.value = typed
    again.setSelectionRange(typed.length, typed.length)
  }
}

// --- changes ---

const isOn = action => state.actions.some(other => written(other) === written(action))

function toggle(action) {
  update({ actions: isOn(action) ? state.actions.filter(other => written(other) !== written(action)) : [...state.actions, action] })
}

const choose = (site, position) => update({ site, position })

async function update(changes) {
  state = { ...state, ...changes }
  for (const i of state.nets) if (i >= 0 && !loaded[i]) await load(i)
  const before = views
  views = state.nets.filter(i => i >= 0).map((index, column) => {
    const source = cleanRun(index, state.other), net = loaded[index]
    const trace = state.actions.length ? run(net, state.pair, state.actions, source) : cleanRun(index, state.pair)
    return { index, column, net, trace, before: cleanRun(index, state.pair), lens: logitLens(net, trace), all: before[column]?.all }
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
  try {
    const next = readAddress(location.hash)
    $('address-error').textContent = ''
    await update(next)
  } catch (error) {
    await update({})
    $('address-error').textContent = `The address was not followed. ${error.message}`
  }
}

function presets() {
  const top = task.shape.map(size => size - 1), made = []
  const alternating = task.base === 2 ? digitsOf(1, task.bits).map((_, i) => (i + 1) % 2).reduce((sum, d, i) => sum + d * 2 ** i, 0) : 0
  const middle = task.answer_names[Math.floor(task.width / 2)], none = { actions: [], shown: task.width }
  if (task.name === 'add' && task.base === 2) {
    made.push(['The carry that ripples through all bits', { ...none, pair: [alternating, top[1] - alternating + 1] }])
  }
  if (OPERANDS === 2) made.push([`${top[0]} ${task.operator} 1`, { ...none, pair: [top[0], Math.min(1, top[1])] }])
  made.push(['A wrong prefix', { ...none, pair: first(0), actions: [{ kind: 'invert', position: task.answer_names[1] }] }])
  if (data.networks[0].kind === 'Transformer') made.push(['Without the encoder', { ...none, pair: first(0), actions: [{ kind: 'tokens' }] }])
  const carry = data.networks[0].effects.filter(effect => effect.intervention === 'carry').sort((a, b) => b.changed - a.changed)[0]
  if (carry) {
    const place = { site: carry.site, position: task.answer_names[carry.position] }
    made.push([`A carry into ${middle} that is not there`, { ...none, ...place, pair: first(0),
      actions: [{ kind: 'steer', ...place, along: 'carry', amount: '1' }] }])
  }
  $('presets').replaceChildren('Try: ', ...made.map(([text, changes]) => element('button', { onclick: () => update(changes) }, text)))
}

function play() {
  clearInterval(playing)
  playing = playing ? undefined : setInterval(() => {
    if (state.shown < task.width) return update({ shown: state.shown + 1 })
    play()
    return drawControls()
  }, 700)
  if (playing) update({ shown: state.shown === task.width ? 0 : state.shown })
  else drawControls()
}

async function start() {
  answers = (await unpack(data.answers)).answers
  $('about').textContent = `Networks that write ${task.operand_names.join(` ${task.operator} `)} token by token, ` +
    'computed here with their own weights. Type numbers, step through the answer, change something inside.'
  $('source').textContent = 'Means and directions were taken over random examples when this page was written; the shares are over others. ' +
    'How they are measured: docs/found/mechanism.md.'
  const on = (id, event, change) => $(id).addEventListener(event, change)
  const step = count => update({ shown: Math.min(Math.max(state.shown + count, 0), task.width) })
  on('net0', 'change', event => update({ nets: [Number(event.target.value), state.nets[1]] }))
  on('net1', 'change', event => update({ nets: [state.nets[0], Number(event.target.value)] }))
  for (const id of ['site', 'position']) on(id, 'change', event => update({ [id]: event.target.value }))
  on('back', 'click', () => step(-1))
  on('forth', 'click', () => step(1))
  on('play', 'click', play)
  on('steps', 'keydown', event => event.key in STEPS && step(STEPS[event.key]))
  on('exchange', 'click', () => toggle({ kind: 'exchange', site: state.site, position: state.position }))
  on('off', 'click', () => {
    const [site, head] = $('part').value.split(':')
    toggle(site === 'encoder' ? { kind: 'encoder' } : head === undefined ? { kind: 'off', site } : { kind: 'off', site, head })
  })
  on('tokens', 'click', () => toggle({ kind: 'tokens' }))
  on('along', 'change', () => update({}))
  on('amount', 'input', event => {
    const steer = { kind: 'steer', site: state.site, position: state.position, along: $('along').value }
    const rest = state.actions.filter(action => !written(action).startsWith(`${written(steer)}:`))
    update({ actions: Number(event.target.value) ? [...rest, { ...steer, amount: event.target.value }] : rest })
  })
  presets()
  addEventListener('hashchange', followAddress)
  await followAddress()
  document.body.dataset.ready = 'true'
}

start()
