'use strict'
// The forward pass of models/transformer.py and models/nanogpt.py for one example, with their names.
//
// `at(site, x)` is called with what each site gives, a matrix (T, ...) whose rows are positions. It may change x in
// place and may keep it: that is how the page reads activations and intervenes. Sums run in double
// precision, activations are rounded to single precision.

const START = 1
const ZERO = 3

function matrix(rows, cols) {
  return { rows, cols, data: new Float32Array(rows * cols) }
}

function row(x, t) {
  return x.data.subarray(t * x.cols, (t + 1) * x.cols)
}

/** (T, C) -> (T, F): x @ weight.T + bias. Blocks of 4 rows and 2 columns are twice as fast. */
function linear(x, weight, bias) {
  const [width, inner] = weight.shape, ws = weight.data, xs = new Float64Array(4 * inner), y = matrix(x.rows, width)
  for (let t = 0; t < x.rows; t += 4) {
    const rows = Math.min(4, x.rows - t)
    for (let i = 0; i < rows; i++) for (let c = 0; c < inner; c++) xs[4 * c + i] = x.data[(t + i) * inner + c]
    for (let f = 0; f < width; f += 2) {
      const next = Math.min(f + 1, width - 1), [p, q] = bias ? [bias.data[f], bias.data[next]] : [0, 0]
      let p0 = p, p1 = p, p2 = p, p3 = p, q0 = q, q1 = q, q2 = q, q3 = q
      for (let c = 0, i = 0, j = f * inner, k = next * inner; c < inner; c++, i += 4, j++, k++) {
        const w = ws[j], v = ws[k], x0 = xs[i], x1 = xs[i + 1], x2 = xs[i + 2], x3 = xs[i + 3]
        p0 += x0 * w
        p1 += x1 * w
        p2 += x2 * w
        p3 += x3 * w
        q0 += x0 * v
        q1 += x1 * v
        q2 += x2 * v
        q3 += x3 * v
      }
      const ps = [p0, p1, p2, p3], qs = [q0, q1, q2, q3]
      for (let i = 0; i < rows; i++) {
        y.data[(t + i) * width + f] = ps[i]
        y.data[(t + i) * width + next] = qs[i]
      }
    }
  }
  return y
}

function add(x, y) {
  return { ...x, data: x.data.map((value, i) => value + y.data[i]) }
}

function map(x, f) {
  return { ...x, data: x.data.map(f) }
}

function lastRows(x, count) {
  return { rows: count, cols: x.cols, data: x.data.slice((x.rows - count) * x.cols) }
}

function layerNorm(x, weight, bias) {
  const y = matrix(x.rows, x.cols)
  for (let t = 0; t < x.rows; t++) {
    const values = row(x, t)
    let mean = 0, variance = 0
    for (const value of values) mean += value / x.cols
    for (const value of values) variance += (value - mean) ** 2 / x.cols
    const scale = 1 / Math.sqrt(variance + 1e-5)
    for (let c = 0; c < x.cols; c++) {
      y.data[t * x.cols + c] = (values[c] - mean) * scale * weight.data[c] + (bias ? bias.data[c] : 0)
    }
  }
  return y
}

/** The error function, by its series of positive terms: error below 1e-10. */
function erf(x) {
  if (Math.abs(x) > 5) return Math.sign(x)
  let term = x, sum = x
  for (let n = 1; Math.abs(term) > 1e-12; n++) {
    term *= 2 * x * x / (2 * n + 1)
    sum += term
  }
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum
}

const gelu = x => 0.5 * x * (1 + erf(x / Math.SQRT2))
const relu = x => Math.max(x, 0)

/** Numbers to shares, in place. */
function softmax(scores) {
  let largest = -Infinity, total = 0
  for (const score of scores) if (score > largest) largest = score
  for (let i = 0; i < scores.length; i++) total += scores[i] = Math.exp(scores[i] - largest)
  for (let i = 0; i < scores.length; i++) scores[i] /= total
  return scores
}

/** Queries (T, C), keys and values (S, C) -> (T, C). A causal query sees keys up to its own place, the ends aligned. */
function attend(q, k, v, heads, causal, site, at) {
  const size = q.cols / heads, keys = k.rows
  const pattern = matrix(q.rows, heads * keys), z = matrix(q.rows, q.cols)
  for (let t = 0; t < q.rows; t++) {
    const scores = new Float64Array(causal ? keys - q.rows + t + 1 : keys)
    for (let h = 0; h < heads; h++) {
      const from = t * q.cols + h * size
      for (let s = 0; s < scores.length; s++) {
        let dot = 0
        for (let c = 0, j = s * k.cols + h * size; c < size; c++) dot += q.data[from + c] * k.data[j + c]
        scores[s] = dot / Math.sqrt(size)
      }
      pattern.data.set(softmax(scores), t * pattern.cols + h * keys)
    }
  }
  at(`${site}.pattern`, pattern)
  for (let t = 0; t < q.rows; t++) {
    for (let c = 0; c < q.cols; c++) {
      const from = t * pattern.cols + Math.floor(c / size) * keys
      let sum = 0
      for (let s = 0; s < keys; s++) sum += pattern.data[from + s] * v.data[s * v.cols + c]
      z.data[t * z.cols + c] = sum
    }
  }
  return at(`${site}.z`, z)
}

function embed(tokens, weight) {
  const x = matrix(tokens.length, weight.shape[1])
  tokens.forEach((token, t) => x.data.set(weight.data.subarray(token * x.cols, (token + 1) * x.cols), t * x.cols))
  return x
}

/** Add sines in the even channels, cosines in the odd ones. */
function sinusoidalPositions(x) {
  for (let t = 0; t < x.rows; t++) {
    for (let c = 0; c < x.cols; c++) {
      const angle = t * Math.exp((c - c % 2) * -Math.log(10000) / x.cols)
      x.data[t * x.cols + c] += c % 2 ? Math.cos(angle) : Math.sin(angle)
    }
  }
  return x
}

class Network {
  constructor(config, weights) {
    Object.assign(this, { config, weights })
  }

  has(module) {
    return `${module}.weight` in this.weights
  }

  linear(x, module) {
    return linear(x, this.weights[`${module}.weight`], this.weights[`${module}.bias`])
  }

  norm(x, module) {
    return layerNorm(x, this.weights[`${module}.weight`], this.weights[`${module}.bias`])
  }
}

/** Post-norm encoder-decoder. */
class Transformer extends Network {
  attention(x, memory, module, site, causal, at) {
    const name = `${module}.sublayer`
    if (!this.has(`${name}.query`)) return this.norm(x, `${module}.norm`)
    const q = this.linear(x, `${name}.query`)
    const [k, v] = ['key', 'value'].map(part => this.linear(memory, `${name}.${part}`))
    const z = attend(q, k, v, this.config.heads, causal, site, at)
    return this.norm(add(x, at(`${site}_out`, this.linear(z, `${name}.out`))), `${module}.norm`)
  }

  feedForward(x, module, layer, at) {
    const name = `${module}.sublayer`
    if (!this.has(`${name}.expand`)) return x
    const post = at(`${layer}.mlp.post`, map(this.linear(x, `${name}.expand`), relu))
    return this.norm(add(x, at(`${layer}.mlp_out`, this.linear(post, `${name}.contract`))), `${module}.norm`)
  }

  embedded(tokens, module) {
    const x = embed(tokens, this.weights[`${module}.weight`])
    return this.config.positions ? sinusoidalPositions(x) : x
  }

  encode(prompt, at) {
    let x = this.embedded(prompt, 'prompt_embedding')
    for (let i = 0; this.has(`encoder.${i}.self_attention.norm`); i++) {
      const module = `encoder.${i}`, layer = `enc.${i + 1}`
      x = at(`${layer}.resid_mid`, this.attention(x, x, `${module}.self_attention`, `${layer}.attn`, false, at))
      x = at(layer, this.feedForward(x, `${module}.feed_forward`, layer, at))
    }
    return x
  }

  decode(memory, answerIn, at) {
    let x = this.embedded(answerIn, 'answer_embedding')
    for (let i = 0; i < this.config.layers; i++) {
      const module = `decoder.${i}`, layer = `dec.${i + 1}`
      x = at(`${layer}.resid_mid`, this.attention(x, x, `${module}.self_attention`, `${layer}.attn`, true, at))
      const cross = this.attention(x, memory, `${module}.cross_attention`, `${layer}.cross_attn`, false, at)
      x = at(`${layer}.resid_mid_cross`, cross)
      x = at(layer, this.feedForward(x, `${module}.feed_forward`, layer, at))
    }
    return this.head(x)
  }

  head(x) {
    return this.linear(x, 'head')
  }
}

/** Pre-norm, decoder-only. */
class NanoGPT extends Network {
  encode(prompt) {
    return prompt
  }

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

  head(x) {
    return linear(this.norm(x, 'norm'), this.weights['embedding.weight'])
  }
}

function columns(x, from, count) {
  const y = matrix(x.rows, count)
  for (let t = 0; t < x.rows; t++) y.data.set(row(x, t).subarray(from, from + count), t * count)
  return y
}

const argmax = values => values.indexOf(Math.max(...values))

/** Greedy decoding: the network's tokens, and the tokens that it read, which `forced` (position -> token) replaces.
 *
 * A guess saves passes: position t depends on the tokens before it only, so every pass settles at least the first
 * position at which the network did not read what it answers, and a right guess needs one pass.
 */
function write(network, prompt, guess, at, forced = {}) {
  const memory = network.encode(prompt, at)
  let read = guess.map((token, t) => forced[t] ?? token)
  for (;;) {
    const logits = network.decode(memory, [START, ...read.slice(0, -1)], at)
    const tokens = guess.map((_, t) => argmax(row(logits, t)))
    const next = tokens.map((token, t) => forced[t] ?? token)
    const wrong = read.findIndex((token, t) => token !== next[t])
    if (wrong < 0) return { logits, tokens, read }
    read = read.map((token, t) => (t < wrong ? token : next[t]))
  }
}

/** Tensors by name, of base64 text: deflated numbers of 16 or 32 bits, one tensor after the other. */
async function unpack({ text, bits, shapes }) {
  const packed = Uint8Array.from(atob(text), character => character.charCodeAt(0))
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))
  const bytes = await new Response(stream).arrayBuffer()
  const numbers = bits === 16 ? Float32Array.from(new Uint16Array(bytes), half) : new Float32Array(bytes)
  let start = 0
  return Object.fromEntries(shapes.map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1)
    return [name, { shape, data: numbers.subarray(start, start += size) }]
  }))
}

/** A number of 16 bits (IEEE 754). */
function half(code) {
  const exponent = code >> 10 & 31, fraction = (code & 1023) / 1024, sign = code >> 15 ? -1 : 1
  return sign * (exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14)
}

if (typeof module !== 'undefined') module.exports = { write, unpack, erf, Transformer, NanoGPT }
