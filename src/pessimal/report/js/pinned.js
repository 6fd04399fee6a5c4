// A pinned token: its reward and rank in every model and prompt, and where that is among all tokens.

const MARKS = ['●', '■', '▲', '◆', '▼', '✚', '★', '⬟'];

class Pinned {
  constructor(box, vocabularies, changed) {
    Object.assign(this, { box, vocabularies, changed, pins: [], shown: null });
    this.draw();
  }

  has(vocabulary, row) {
    return this.pins.some((pin) => pin.vocabulary === vocabulary && pin.row === row);
  }

  toggle(vocabulary, row) {
    const there = this.pins.find((pin) => pin.vocabulary === vocabulary && pin.row === row);
    if (there) this.pins = this.pins.filter((pin) => pin !== there);
    else this.pins.push((this.shown = { vocabulary, row }));
    if (there === this.shown) this.shown = this.pins.at(-1) ?? null;
    this.draw();
    this.changed();
  }

  async draw() {
    if (!this.shown) {
      this.box.replaceChildren(
        element(
          'p',
          { class: 'note' },
          'Click a token, or press Enter on it, to pin it.',
        ),
      );
      return;
    }
    const drawn = this.shown;
    await Promise.all(this.vocabularies.map((v) => v.read()));
    const lines = this.lines(drawn);
    await Promise.all(lines.flatMap((line) => line.columns).map((column) => column.read()));
    if (drawn === this.shown) this.box.replaceChildren(this.chips(), this.title(drawn), this.table(lines));
  }

  chips() {
    return element(
      'div',
      { class: 'chips', role: 'group', 'aria-label': 'Pinned tokens' },
      ...this.pins.map((pin) => {
        const name = literal(pin.vocabulary.texts[pin.row]);
        const show = element('button', { type: 'button', 'aria-pressed': String(pin === this.shown) }, name);
        const drop = element('button', { type: 'button', 'aria-label': `Unpin ${name}` }, '×');
        show.addEventListener('click', () => {
          this.shown = pin;
          this.draw();
        });
        drop.addEventListener('click', () => this.toggle(pin.vocabulary, pin.row));
        return element('span', { class: 'chip' }, show, drop);
      }),
    );
  }

  title({ vocabulary, row }) {
    const raw = vocabulary.token(row),
      text = vocabulary.texts[row];
    const parts = [`id ${vocabulary.id(row)}`, vocabulary.kind(row), `${whole(vocabulary.rows)} candidates`];
    if (raw !== '' && raw !== text) parts.unshift(`in the vocabulary ${literal(raw)}`);
    return element(
      'h4',
      {},
      element('code', {}, literal(text)),
      element('span', { class: 'note' }, ` ${parts.join(' · ')}`),
    );
  }

  /** One line for each model and variant: of the token's own vocabulary, then of others that hold its text. */
  lines({ vocabulary, row }) {
    const own = new Map([[vocabulary, row]]);
    return linesOf(vocabulary.texts[row], [vocabulary, ...this.vocabularies.filter((v) => v !== vocabulary)], own);
  }

  table(lines) {
    return placesOf(lines, [...new Set(this.vocabularies.flatMap((v) => v.prompts()))]);
  }
}

/** What a text is in these vocabularies: a line for each model and variant, `row` undefined where it is not one token. */
function linesOf(text, vocabularies, rows = new Map()) {
  const lines = [];
  for (const vocabulary of vocabularies) {
    const row = rows.get(vocabulary) ?? vocabulary.alike(text)[0];
    for (const name of new Set(vocabulary.columns.map((column) => column.name))) {
      const columns = row === undefined ? [] : vocabulary.columns.filter((column) => column.name === name);
      const own = row === undefined ? null : vocabulary.texts[row];
      lines.push({ name, columns, row, text: own, same: own === null || own === text });
    }
  }
  return lines;
}

/** Lines as a table: rank of n on each prompt, and where that is between the highest and the lowest. */
function placesOf(lines, prompts) {
  const head = element(
    'tr',
    {},
    element('th', { scope: 'col' }, 'model'),
    element('th', { scope: 'col' }, 'highest … lowest'),
    ...prompts.map((prompt, i) =>
      element(
        'th',
        { scope: 'col', class: 'number' },
        element('span', { class: `mark mark${i % 4}` }, MARKS[i % MARKS.length]),
        ` ${literal(prompt)}`,
      ),
    ),
  );
  const rows = lines.map((line) => {
    const track = element('div', { class: 'track', role: 'img', 'aria-label': spoken(line, prompts) });
    const cells = prompts.map((prompt, i) => {
      const column = line.columns.find((c) => c.prompt === prompt);
      if (!column) return element('td', { class: 'number' }, '–');
      const mark = element(
        'span',
        { class: `mark mark${i % 4}`, 'aria-hidden': 'true' },
        MARKS[i % MARKS.length],
      );
      mark.style.top = `${((i % 3) - 1) * 3}px`; // a little apart, where several are at one place
      mark.style.left = `${100 * column.share(line.row)}%`;
      track.append(mark);
      return element(
        'td',
        { class: 'number' },
        column.rewardText(line.row),
        ' ',
        element('span', { class: 'rank' }, `${column.rankText(line.row)} of ${whole(column.vocabulary.rows)}`),
      );
    });
    const name = element('th', { scope: 'row', title: line.columns[0]?.fullName }, line.name);
    if (line.row === undefined) name.append(element('span', { class: 'note' }, ' not one token'));
    else if (!line.same) name.append(element('span', { class: 'note' }, ` as ${literal(line.text)}`));
    return element('tr', {}, name, element('td', {}, track), ...cells);
  });
  return element(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'The token in every model' },
    element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows)),
  );
}

function spoken(line, prompts) {
  const told = prompts
    .map((prompt) => line.columns.find((c) => c.prompt === prompt))
    .filter(Boolean)
    .map((column) => `${column.prompt}: rank ${column.values.rank[line.row]} of ${column.vocabulary.rows}`);
  return told.join('; ') || 'not in this vocabulary';
}

/** Where what is typed stands in every vocabulary on one prompt, as soon as it is one token of one of them. */
class Word {
  constructor(box, vocabularies) {
    Object.assign(this, { box, vocabularies, typed: '' });
  }

  show(typed, prompt) {
    if (typed === this.typed && prompt === this.prompt) return;
    Object.assign(this, { typed, prompt });
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.draw(), typed.trim() ? 250 : 0); // not at every key
  }

  async draw() {
    const { typed, prompt } = this;
    if (typed.trim() === '') {
      this.box.replaceChildren();
      return;
    }
    const asked = this.vocabularies.filter((vocabulary) => vocabulary.prompts().includes(prompt));
    await Promise.all(asked.map((vocabulary) => vocabulary.read()));
    const lines = linesOf(typed.trim(), asked)
      .map((line) => ({ ...line, columns: line.columns.filter((column) => column.prompt === prompt) }))
      .filter((line) => line.row === undefined || line.columns.length);
    if (lines.every((line) => line.row === undefined)) {
      const nowhere = `“${literal(typed.trim())}” is not one token of any vocabulary here.`;
      if (typed === this.typed) this.box.replaceChildren(element('p', { class: 'note' }, nowhere));
      return;
    }
    await Promise.all(lines.flatMap((line) => line.columns).map((column) => column.read()));
    if (typed === this.typed && prompt === this.prompt) this.box.replaceChildren(placesOf(lines, [prompt]));
  }
}
