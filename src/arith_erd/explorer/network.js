'use strict'
// The forward pass of models/transformer.py and models/nanogpt.py for one example, with their names.
//
// `at(site, x)` gets each site's output, a matrix (T, ...) whose rows are positions, and returns the matrix to go on
// with: so the page reads activations and intervenes. Sums run in double precision, activations are rounded to single.

const START = 1, ZERO = 3

const matrix = (rows, cols, data = new Float32Array(rows * cols)) => ({ rows, cols, data })
const row = (x, t) => x.data.subarray(t * x.cols, (t + 1) * x.cols)
const map = (x, f) => matrix(x.rows, x.cols, x.data.map(f))
const add = (x, y) => map(x, (value, i) => value + y.data[i])
const lastRows = (x, count) => matrix(count, x.cols, x.data.slice((x.rows - count) * x.cols))

/** A matrix of the rows f(t), each of `cols` numbers. */
function stack(rows, cols, f) {
  const x = matrix(rows, cols)
  for (let t = 0; t < rows; t++) row(x, t).set(f(t))
  return x
}

const embed = (tokens, weight) => stack(tokens.length, weight.cols, t => row(weight, tokens[t]))
const columns = (x, from, count) => stack(x.rows, count, t => row(x, t).subarray(from, from + count))
const transpose = x => stack(x.cols, x.rows, c => x.data.filter((_, i) => i % x.cols === c))

/** (T, C) -> (T, F): x @ weight.T + bias. */
function linear(x, weight, bias) {
  const { rows: width, cols: inner, data: ws } = weight, y = matrix(x.rows, width)
  for (let t = 0; t < x.rows; t++) {
    const xs = row(x, t)
    for (let f = 0; f < width; f++) {
      let sum = bias ? bias.data[f] : 0
      for (let c = 0, i = f * inner; c < inner; c++, i++) sum += xs[c] * ws[i]
      y.data[t * width + f] = sum
    }
  }
  return y
}

function layerNorm(x, weight, bias) {
  return stack(x.rows, x.cols, t => {
    const values = row(x, t)
    const mean = values.reduce((sum, value) => sum + value / x.cols, 0)
    const scale = 1 / Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2 / x.cols, 1e-5))
    return values.map((value, c) => (value - mean) * scale * weight.data[c] + (bias ? bias.data[c] : 0))
  })
}

/** The error function, by its series of positive terms: error below 1e-10. */
function erf(x) {
  if (Math.abs(x) > 5) return Math.sign(x)
  let term = x, sum = x
  for (let n = 1; Math.abs(term) > 1e-12; n++) sum += term *= 2 * x * x / (2 * n + 1)
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum
}

const gelu = x => 0.5 * x * (1 + erf(x / Math.SQRT2))
const relu = x => Math.max(x, 0)
const argmax = values => values.indexOf(Math.max(...values))

function softmax(scores) {
  const largest = Math.max(...scores), powers = Array.from(scores, score => Math.exp(score - largest))
  const total = powers.reduce((sum, power) => sum + power)
  return powers.map(power => power / total)
}

/** Queries (T, C), keys and values (S, C) -> (T, C). A causal query sees keys up to its own place, the ends aligned. */
function attend(q, k, v, heads, causal, site, at) {
  const size = q.cols / heads, z = matrix(q.rows, q.cols)
  for (let h = 0; h < heads; h++) {
    const [queries, keys, values] = [q, k, v].map(x => columns(x, h * size, size))
    const scores = linear(map(queries, value => value / Math.sqrt(size)), keys)
    const seen = t => (causal ? k.rows - q.rows + t + 1 : k.rows)
    const pattern = stack(q.rows, k.rows, t => softmax(row(scores, t).subarray(0, seen(t))))
    const own = linear(at(`${site}.pattern.${h}`, pattern), transpose(values))
    for (let t = 0; t < q.rows; t++) row(z, t).set(row(own, t), h * size)
  }
  return at(`${site}.z`, z)
}

/** RoPE: channels i and i + size / 2 of each head turn by the angle t / 10000^(2 i / size). */
const turned = (x, heads) => stack(x.rows, x.cols, t => row(x, t).map((value, c, values) => {
  const size = x.cols / heads, half = size / 2, i = c % size, angle = t / 10000 ** (2 * (i % half) / size)
  return value * Math.cos(angle) + Math.sin(angle) * (i < half ? -values[c + half] : values[c - half])
}))

class Network {
  constructor(config, weights) { Object.assign(this, { config, weights, preNorm: config.kind === 'NanoGPT' }) }

  /** The layers of a stack by their sites: `dec.1`, `dec.2`, .. */
  layers = stack => this.config.stream.filter(site => site.replace(/\d+$/, '') === `${stack}.`)
  has = module => `${module}.weight` in this.weights
  linear = (x, module) => linear(x, this.weights[`${module}.weight`], this.weights[`${module}.bias`])
  norm = (x, module) => layerNorm(x, this.weights[`${module}.weight`], this.weights[`${module}.bias`])
  embedded = (tokens, name) => add(embed(tokens, this.weights[`${name}.weight`]), this.weights[`${name}.positions`])

  /** x + f(x) in the last rows, without what was removed in an ablation. */
  residual(x, last, module, f) {
    const name = `${module}.sublayer`, norm = y => this.norm(y, `${module}.norm`)
    if (!this.has(`${module}.norm`)) return lastRows(x, last)
    if (this.preNorm) return add(lastRows(x, last), f(norm(x), name))
    return norm(this.has(`${name}.out`) || this.has(`${name}.expand`) ? add(x, f(x, name)) : x)
  }

  /** All positions of the memory give keys and values, only the last ones of x queries. */
  attention = (x, memory, last, module, site, causal, at) => this.residual(x, last, module, (y, name) => {
    const qkv = this.preNorm && this.linear(y, `${name}.qkv`)
    const [q, k, v] = ['query', 'key', 'value'].map((part, i) => {
      const projected = qkv ? columns(qkv, i * x.cols, x.cols) : this.linear(i ? memory : y, `${name}.${part}`)
      return this.config.rope && i < 2 && x === memory ? turned(projected, this.config.heads) : projected
    })
    const z = attend(lastRows(q, last), k, v, this.config.heads, causal, site, at)
    return at(`${site}_out`, this.linear(z, `${name}.out`))
  })

  mlp = (x, module, layer, at) => this.residual(x, x.rows, module, (y, name) => {
    const post = at(`${layer}.mlp.post`, map(this.linear(y, `${name}.expand`), this.preNorm ? gelu : relu))
    return at(`${layer}.mlp_out`, this.linear(post, `${name}.${this.preNorm ? 'out' : 'contract'}`))
  })
}

/** Post-norm encoder-decoder. */
class Transformer extends Network {
  /** A layer of the encoder, or with the encoder's output as `memory` one of the decoder. */
  layer(x, memory, module, layer, at) {
    const attend = (y, keys, part, site, causal) =>
      this.attention(y, keys, y.rows, `${module}.${part}_attention`, `${layer}.${site}`, causal, at)
    x = at(`${layer}.resid_mid`, attend(x, x, 'self', 'attn', Boolean(memory)))
    if (memory) x = at(`${layer}.resid_mid_cross`, attend(x, memory, 'cross', 'cross_attn', false))
    return at(layer, this.mlp(x, `${module}.feed_forward`, layer, at))
  }

  encode = (prompt, at) => this.layers('enc').reduce(
    (x, layer, i) => this.layer(x, undefined, `encoder.${i}`, layer, at), this.embedded(prompt, 'prompt_embedding'))

  decode = (memory, answerIn, at) => this.head(this.layers('dec').reduce(
    (x, layer, i) => this.layer(x, memory, `decoder.${i}`, layer, at), this.embedded(answerIn, 'answer_embedding')))

  head = x => this.linear(x, 'head')
}

/** Pre-norm, decoder-only. */
class NanoGPT extends Network {
  encode = prompt => prompt

  decode(memory, answerIn, at) {
    const tokens = [...memory, ...answerIn], layers = this.layers('dec')
    return this.head(layers.reduce((x, layer, i) => {
      const block = `blocks.${i}`, last = i < layers.length - 1 ? tokens.length : answerIn.length
      const y = this.attention(x, x, last, `${block}.attention`, `${layer}.attn`, true, at)
      return at(layer, this.mlp(at(`${layer}.resid_mid`, y), `${block}.feed_forward`, layer, at))
    }, this.embedded(tokens, 'embedding')))
  }

  head = x => linear(this.norm(x, 'norm'), this.weights['embedding.weight'])
}

/** Greedy decoding: the network's tokens, and what it read in their place: `reading(token, t)` at position t.
 *
 * A guess saves passes: position t depends on the tokens before it only, so every pass settles at least the first
 * position at which the network did not read what it answers, and a right guess needs one pass.
 */
function write(network, prompt, guess, at, reading = token => token) {
  const memory = network.encode(prompt, at)
  for (let read = guess.map(reading); ;) {
    const logits = network.decode(memory, [START, ...read.slice(0, -1)], at)
    const tokens = guess.map((_, t) => argmax(row(logits, t))), next = tokens.map(reading)
    const wrong = read.findIndex((token, t) => token !== next[t])
    if (wrong < 0) return { logits, tokens, read }
    read = read.map((token, t) => (t < wrong ? token : next[t]))
  }
}

/** Matrices by name, of base64 text: deflated bytes of numbers, first all first bytes, then all second ones, .. */
async function unpack({ numbers, shapes }) {
  const packed = Uint8Array.from(atob(numbers), character => character.charCodeAt(0))
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer()), count = bytes.length / 4
  const values = new Float32Array(bytes.map((_, i) => bytes[i % 4 * count + Math.floor(i / 4)]).buffer)
  let start = 0
  return Object.fromEntries(Object.entries(shapes).map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b), cols = shape.at(-1)
    return [name, matrix(size / cols, cols, values.subarray(start, start += size))]
  }))
}
