// Which tokens are looked for, and in which order they stand.

const SLOWEST = 3000; // ms after which an expression of the user's is given up: some take for ever

/** A function row → boolean for what was typed, or null for everything. Raises SyntaxError for a bad expression. */
function matcher(vocabulary, { typed, way, matchCase }) {
  if (typed === '' && way !== 'exactly') return null;
  const { texts, literals } = vocabulary;
  if (way === 'expression') {
    const expression = new RegExp(typed, matchCase ? 'u' : 'iu');
    const until = performance.now() + SLOWEST;
    return (row) => {
      if (row % 512 === 0 && performance.now() > until) throw new RangeError('the expression takes too long');
      return expression.test(texts[row]) || expression.test(vocabulary.token(row));
    };
  }
  const wanted = matchCase ? typed : typed.toLowerCase();
  if (way === 'contains') {
    const heaps = vocabulary.heaps(matchCase);
    return (row) => heaps[row].includes(wanted);
  }
  const same = (text) => (matchCase ? text : text.toLowerCase()) === wanted;
  return (row) => same(texts[row]) || same(literals[row]) || same(vocabulary.token(row));
}

/** The rows that pass, in the order asked for, as a Uint32Array. */
function found(vocabulary, { match, kind, survives, selection, columns, sort }) {
  const every = sequence(vocabulary, sort);
  const passes = (row) =>
    (kind === 'all' || vocabulary.kind(row) === kind) &&
    (survives === 'all' || survivesEverywhere(columns, row) === (survives === 'yes')) &&
    (!selection || selection.has(row)) &&
    (!match || match(row));
  const rows = every.filter(passes);
  return sort.descending ? rows.reverse() : rows;
}

/** Whether a token survives with every model: false where one of them says no, null where nobody asked. */
function survivesEverywhere(columns, row) {
  const told = columns.map((column) => column.values.survives(row));
  return told.includes(false) ? false : told.includes(true) ? true : null;
}

/** All rows in ascending order: by id, by text, or by rank in a column. */
function sequence(vocabulary, { by, column }) {
  if (by === 'reward') return column.values.order;
  if (by === 'token') return (vocabulary.byToken ??= alphabetical(vocabulary.texts));
  return (vocabulary.byId ??= byNumber(vocabulary));
}

function alphabetical(texts) {
  const keys = texts.map((text) => text.trim().toLowerCase());
  const compare = (a, b) =>
    keys[a] < keys[b]
      ? -1
      : keys[a] > keys[b]
        ? 1
        : texts[a] < texts[b]
          ? -1
          : texts[a] > texts[b]
            ? 1
            : a - b;
  return Uint32Array.from(texts.keys()).sort(compare);
}

function byNumber(vocabulary) {
  const rows = Uint32Array.from({ length: vocabulary.rows }, (_, row) => row);
  return vocabulary.ids ? rows.sort((a, b) => vocabulary.ids[a] - vocabulary.ids[b]) : rows;
}
