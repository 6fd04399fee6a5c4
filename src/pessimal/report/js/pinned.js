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
          'Click a token, or press Enter on it, to pin it: its place in every model and prompt is shown here, and in the scatter.',
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
    const lines = [];
    for (const other of [vocabulary, ...this.vocabularies.filter((v) => v !== vocabulary)]) {
      const place = other === vocabulary ? row : other.alike(vocabulary.texts[row])[0];
      for (const name of new Set(other.columns.map((column) => column.name))) {
        const columns = place === undefined ? [] : other.columns.filter((column) => column.name === name);
        lines.push({
          name,
          columns,
          row: place,
          foreign: other !== vocabulary,
          text: place === undefined ? null : other.texts[place],
          same: other === vocabulary || other.texts[place] === vocabulary.texts[row],
        });
      }
    }
    return lines;
  }

  table(lines) {
    const prompts = [...new Set(this.vocabularies.flatMap((v) => v.prompts()))];
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
      const track = element('div', { class: 'track', role: 'img', 'aria-label': this.spoken(line, prompts) });
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
          element('span', { class: 'rank' }, column.rankText(line.row)),
        );
      });
      const name = element('th', { scope: 'row', title: line.columns[0]?.fullName }, line.name);
      if (line.foreign && !line.columns.length)
        name.append(element('span', { class: 'note' }, ' has no such token'));
      else if (!line.same) name.append(element('span', { class: 'note' }, ` as ${literal(line.text)}`));
      return element('tr', {}, name, element('td', {}, track), ...cells);
    });
    return element(
      'div',
      { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'The pinned token in every model' },
      element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows)),
    );
  }

  spoken(line, prompts) {
    const told = prompts
      .map((prompt) => line.columns.find((c) => c.prompt === prompt))
      .filter(Boolean)
      .map((column) => `${column.prompt}: rank ${column.values.rank[line.row]} of ${column.vocabulary.rows}`);
    return told.join('; ') || 'not in this vocabulary';
  }
}
