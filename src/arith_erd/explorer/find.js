// Find the algorithm: one network of the page is drawn and hidden, and the visitor has ten interventions to name it.
//
// Answers are encoded, and the address has a seed in place of the network. So nobody reads the answer by accident; but
// it is not encrypted.

const BUDGET = 10
const CHOICES = { sum: 'It forms the sum as one number', carries: 'It computes carries',
  table: 'It looks the answer up: no arithmetic inside', nothing: 'Nothing: it has not learned to add' }

const drawn = (seed, count) => many(3, x => x).reduce(x => x * 48271 % 2147483647, seed + 1) % count
const answerIn = ({ answer }) => JSON.parse(atob(answer))

/** A new game. Without a seed another network than the last one is drawn. */
function newGame(seed) {
  const next = seed ?? Math.floor(Math.random() * 1e6), index = drawn(next, networks.length)
  if (seed === undefined && index === state?.nets[0]) return newGame()
  return { seed: next, nets: [index], log: [], named: '', actions: [], errors: {} }
}

function readSeed(text) {
  if (/^\d{1,6}$/.test(text)) return Number(text)
  throw Error(`seed = "${text.slice(0, 20)}": expected a whole number from 0 to 999999.`)
}

/** The changes of the state, with new interventions counted; or a sentence that refuses them. */
function counted(changes) {
  const added = (changes.actions ?? []).filter(action => !state.actions.includes(action))
  if (!added.length || state.named) return changes
  const { pair, other } = state, { missing } = run(views[0].net, pair, changes.actions, other)
  const refused = missing.length ? `This network has no place for: ${missing.map(actionWords).join('; ')}. Not counted.`
    : state.log.length === BUDGET && `All ${BUDGET} interventions are used. Name the algorithm.`
  if (refused) return { errors: { ...state.errors, game: refused } }
  const entry = { action: added[0], words: actionWords(added[0]), actions: changes.actions, pair, other }
  return { ...changes, log: [...state.log, entry], errors: { ...state.errors, game: '' } }
}

/** An intervention of the log, what it changed and, once the answer is open, which networks answer in this way. */
function drawEntry(entry) {
  const { pair, actions, other, words } = entry, hidden = state.nets[0]
  const tokens = net => { entry[net.config.answer] ??= run(net, pair, actions, other).tokens; return entry[net.config.answer] }
  const now = tokens(loaded[hidden]), before = run(loaded[hidden], pair).tokens
  const names = ANSWER.filter((_, t) => now[t] !== before[t]).join(', ')
  const along = actions.length > 1 ? `, with ${actions.length - 1} more` : ''
  const same = state.named && loaded.filter(net => String(tokens(net)) === String(now))
  const told = same && (same.length === networks.length ? ' All of the networks answer so: it told nothing.'
    : ` So answer only: ${same.map(net => answerIn(net.config).name).sort().join(', ')}.`)
  return element('li', {}, `${joined(pair)}, ${words}${along}: `,
    element('strong', {}, names ? `changed ${names}.` : 'changed no token.'), told)
}

function drawChoices() {
  return [element('h2', {}, 'Which algorithm does it run?'),
    line(Object.entries(CHOICES).map(([kind, words]) => button(`name-${kind}`, words, () => nameIt(kind))))]
}

const gameLabel = () => (state.named ? answerIn(networks[state.nets[0]]).name : 'The hidden network')

/** Open the sealed answer. */
const nameIt = kind => update({ named: kind,
  games: [...state.games, kind === answerIn(networks[state.nets[0]]).kind] })

function drawOpened() {
  const { name, kind, says, note } = answerIn(networks[state.nets[0]]), good = kind === state.named
  const right = state.games.filter(Boolean).length
  return [element('h2', {}, `${good ? '✓ Right' : '✗ Wrong'}: ${name}`),
    element('p', { className: good ? 'right' : 'wrong' }, good ? `${CHOICES[kind]}.`
      : `You said: ${CHOICES[state.named]}. The answer: ${CHOICES[kind]}.`),
    element('p', {}, says), note && element('p', {}, note),
    soft('The page now shows the inside of the network, and interventions are no longer counted.'),
    line(button('another', 'Another network', () => update(newGame())),
      element('span', { className: 'soft' }, `${right} of ${state.games.length} named right.`))]
}

function drawGame() {
  const { log, named } = state
  return element('section', { id: 'game', ariaLabel: 'The game', ariaLive: 'polite' },
    named ? drawOpened() : drawChoices(), complaint('game'),
    element('h3', {}, named ? 'What each intervention told' : `${log.length} of ${BUDGET} interventions used`),
    log.length ? element('ol', {}, log.map(drawEntry)) : soft(named ? 'You used none.' : 'None yet.'))
}

function gameIntro() {
  const strategy = data.docs && element('a', { href: `${data.docs}how-to/find/`, target: '_blank' }, 'A strategy')
  return soft(`One of ${networks.length} networks is drawn and hidden. All have the same architecture and size. Two form ` +
    'the sum as one number, two compute carries, one looks the answer up in a table, and one was never trained. Change ' +
    `something inside, at most ${BUDGET} times, and see how the answer changes. Then name the algorithm. Other numbers, ` +
    'and removing an intervention, cost nothing. ', strategy)
}
