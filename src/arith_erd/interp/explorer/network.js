'use strict'
// The forward pass of models/transformer.py and models/nanogpt.py for one example, with their names.
//
// `at(site, x)` is called with what each site gives, a matrix (T, ...) whose rows are positions. It may change x in
// place and may keep it: that is how the page reads activations and intervenes. Sums run in double
// precision, activations are rounded to single precision.

const START = 1
const ZERO = 3

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

/** Numbers to shares, in place. */
function softmax(scores) {
  const largest = Math.max(...scores)
  let total = 0
  for (let i = 0; i < scores.length; i++) total += scores[i] = Math.exp(scores[i] - largest)
  for (let i = 0; i < scores.length; i++) scores[i] /= total
  return scores
}

/** Queries (T, C), keys and values (S, C) -> (T, C). A causal query sees keys up to its own place, the ends aligned. */
function attend(q, k, v, heads, causal, site, at) {
  const size = q.cols / heads, pattern = matrix(q.rows, heads * k.rows), z = matrix(q.rows, q.cols)
  for (let t = 0; t < q.rows; t++) {
    for (let h = 0; h < heads; h++) {
      const scores = new Float64Array(causal ? k.rows - q.rows + t + 1 : k.rows), from = t * q.cols + h * size
      for (let s = 0; s < scores.length; s++) {
        let dot = 0
        for (let c = 0, i = s * k.cols + h * size; c < size; c++, i++) dot += q.data[from + c] * k.data[i]
        scores[s] = dot / Math.sqrt(size)
      }
      row(pattern, t).set(softmax(scores), h * k.rows)
    }
  }
  at(`${site}.pattern`, pattern)
  for (let t = 0; t < q.rows; t++) {
    for (let c = 0; c < q.cols; c++) {
      const from = t * pattern.cols + Math.floor(c / size) * k.rows
      let sum = 0
      for (let s = 0; s < k.rows; s++) sum += pattern.data[from + s] * v.data[s * v.cols + c]
      z.data[t * z.cols + c] = sum
    }
  }
  return at(`${site}.z`, z)
}

/** Add sines in the even channels, cosines in the odd ones. */
function sinusoidalPositions(x) {
  return map(x, (value, i) => {
    const c = i % x.cols, angle = (i - c) / x.cols * Math.exp((c - c % 2) * -Math.log(10000) / x.cols)
    return value + (c % 2 ? Math.cos(angle) : Math.sin(angle))
  })
}

class Network {
  constructor(config, weights) {
    Object.assign(this, { config, weights })
  }

  has = module => `${module}.weight` in this.weights
  linear = (x, module) => linear(x, this.weights[`${module}.weight`], this.weights[`${module}.bias`])
  norm = (x, module) => layerNorm(x, this.weights[`${module}.weight`], this.weights[`${module}.bias`])
}

/** Post-norm encoder-decoder. */
class Transformer extends Network {
  attention(x, memory, module, site, causal, at) {
    const name = `${module}.sublayer`
    if (!this.has(`${name}.query`)) return this.norm(x, `${module}.norm`)
    const [q, k, v] = ['query', 'key', 'value'].map((part, i) => this.linear(i ? memory : x, `${name}.${part}`))
    const z = attend(q, k, v, this.config.heads, causal, site, at)
    return this.norm(add(x, at(`${site}_out`, this.linear(z, `${name}.out`))), `${module}.norm`)
  }

  feedForward(x, module, layer, at) {
    const name = `${module}.sublayer`
    if (!this.has(`${name}.expand`)) return x
    const post = at(`${layer}.mlp.post`, map(this.linear(x, `${name}.expand`), relu))
    return this.norm(add(x, at(`${layer}.mlp_out`, this.linear(post, `${name}.contract`))), `${module}.norm`)
  }

  /** A layer of the encoder, or with the encoder's output as `memory` one of the decoder. */
  layer(x, memory, module, layer, at) {
    x = this.attention(x, x, `${module}.self_attention`, `${layer}.attn`, Boolean(memory), at)
    x = at(`${layer}.resid_mid`, x)
    if (memory) {
      x = this.attention(x, memory, `${module}.cross_attention`, `${layer}.cross_attn`, false, at)
      x = at(`${layer}.resid_mid_cross`, x)
    }
    return at(layer, this.feedForward(x, `${module}.feed_forward`, layer, at))
  }

  embedded(tokens, module) {
    const x = embed(tokens, this.weights[`${module}.weight`])
    return this.config.positions ? sinusoidalPositions(x) : x
  }

  encode(prompt, at) {
    let x = this.embedded(prompt, 'prompt_embedding')
    for (let i = 0; this.has(`encoder.${i}.self_attention.norm`); i++) {
      x = this.layer(x, undefined, `encoder.${i}`, `enc.${i + 1}`, at)
    }
    return x
  }

  decode(memory, answerIn, at) {
    let x = this.embedded(answerIn, 'answer_embedding')
    for (let i = 0; i < this.config.layers; i++) x = this.layer(x, memory, `decoder.${i}`, `dec.${i + 1}`, at)
    return this.head(x)
  }

  head = x => this.linear(x, 'head')
}

/** Pre-norm, decoder-only. */
class NanoGPT extends Network {
  encode = prompt => prompt

  decode(memory, answerIn, at) {
    const tokens = [...memory, ...answerIn]
    let x = embed(tokens, this.weights['embedding.weight'])
    if (this.config.positions) x = add(x, this.weights['positions.weight'])
    for (let i = 0; i < this.config.layers; i++) {
      x = this.block(x, `blocks.${i}`, `dec.${i + 1}`, i < this.config.layers - 1 ? tokens.length : answerIn.length, at)
    }
    return this.head(x)
  }

  /** All positions give keys and values, only the last ones queries. */
  block(x, module, layer, last, at) {
    const attention = `${module}.attention`, mlp = `${module}.feed_forward`
    let y = lastRows(x, last)
    if (this.has(`${attention}.norm`)) {
      const qkv = this.linear(this.norm(x, `${attention}.norm`), `${attention}.sublayer.qkv`)
      const [q, k, v] = [0, 1, 2].map(part => columns(qkv, part * x.cols, x.cols))
      const z = attend(lastRows(q, last), k, v, this.config.heads, true, `${layer}.attn`, at)
      y = at(`${layer}.resid_mid`, add(y, at(`${layer}.attn_out`, this.linear(z, `${attention}.sublayer.out`))))
    }
    if (this.has(`${mlp}.norm`)) {
      const hidden = this.linear(this.norm(y, `${mlp}.norm`), `${mlp}.sublayer.expand`)
      const post = at(`${layer}.mlp.post`, map(hidden, gelu))
      y = add(y, at(`${layer}.mlp_out`, this.linear(post, `${mlp}.sublayer.out`)))
    }
    return at(layer, y)
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

/** Matrices by name, of base64 text: deflated numbers of 16 or 32 bits, one tensor after the other. */
async function unpack({ text, bits, shapes }) {
  const packed = Uint8Array.from(atob(text), character => character.charCodeAt(0))
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))
  const bytes = await new Response(stream).arrayBuffer()
  const numbers = bits === 16 ? Float32Array.from(new Uint16Array(bytes), half) : new Float32Array(bytes)
  let start = 0
  return Object.fromEntries(shapes.map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1), cols = shape.at(-1)
    return [name, matrix(size / cols, cols, numbers.subarray(start, start += size))]
  }))
}

/** A number of 16 bits (IEEE 754). */
function half(code) {
  const exponent = code >> 10 & 31, fraction = (code & 1023) / 1024, sign = code >> 15 ? -1 : 1
  return sign * (exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14)
}

if (typeof module !== 'undefined') module.exports = { write, unpack, erf, Transformer, NanoGPT }
