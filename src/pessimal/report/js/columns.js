// Vocabularies and their columns: one column is one model's rewards for one prompt. Read when first asked for.

class Vocabulary {
  constructor(entry, index) {
    Object.assign(this, {
      label: entry.label,
      rows: entry.rows,
      chunk: entry.chunk,
      candidates: entry.candidates,
    });
    this.columns = entry.columns.map((column) => new Column(column, this, index));
    this.kindNames = index.kinds;
  }

  async read() {
    this.reading ??= (async () => {
      const document = JSON.parse(new TextDecoder().decode(await chunk(this.chunk)));
      this.texts = document.texts;
      this.tokens = document.tokens;
      this.ids = document.ids;
      this.kinds = document.kinds;
    })();
    await this.reading;
    return this;
  }

  id(row) {
    return this.ids ? this.ids[row] : row;
  }
  token(row) {
    return this.tokens[row] === 0 ? this.texts[row] : this.tokens[row];
  }
  kind(row) {
    return this.kindNames[this.kinds[row]];
  }

  /** Texts with everything visible, by row; made once. */
  get literals() {
    return (this.madeLiterals ??= this.texts.map(literal));
  }

  /** Everything that a token can be found by, by row, in one string; made once: a key press then takes some 30 ms of 128,000. */
  heaps(matchCase) {
    const key = matchCase ? 'madeHeaps' : 'madeFoldedHeaps';
    return (this[key] ??= this.texts.map((text, row) => {
      const heap = [...new Set([text, this.literals[row], this.token(row)])].join('\uFFFF\uFFFE'); // nobody types these
      return matchCase ? heap : heap.toLowerCase();
    }));
  }

  /** The rows whose text, without outer white space, is this; the barest first. */
  alike(text) {
    if (!this.byText) {
      this.byText = new Map();
      this.texts.forEach((own, row) => {
        const bare = own.trim();
        if (this.byText.has(bare)) this.byText.get(bare).push(row);
        else this.byText.set(bare, [row]);
      });
    }
    const bare = text.trim();
    if (bare === '' || bare.includes('\uFFFD')) return []; // no text of its own: nothing says that two are one
    return [...(this.byText.get(bare) ?? [])].sort((a, b) => this.texts[a].length - this.texts[b].length);
  }

  /** The barest row of each text without outer white space; texts that two tokens have are left out, as in `compare`. */
  barest() {
    if (!this.madeBarest) {
      this.alike('');
      this.madeBarest = new Map();
      for (const [bare, rows] of this.byText) {
        const times = new Map();
        for (const row of rows) times.set(this.texts[row], (times.get(this.texts[row]) ?? 0) + 1);
        const own = rows.filter((row) => times.get(this.texts[row]) === 1);
        own.sort((a, b) => this.texts[a].length - this.texts[b].length);
        if (bare !== '' && own.length) this.madeBarest.set(bare, own[0]);
      }
    }
    return this.madeBarest;
  }

  prompts() {
    return [...new Set(this.columns.map((column) => column.prompt))];
  }
  of(prompt) {
    return this.columns.filter((column) => column.prompt === prompt);
  }
}

class Column {
  constructor(entry, vocabulary, index) {
    Object.assign(this, entry);
    this.vocabulary = vocabulary;
    this.name = index.models[entry.model] + (entry.variant ? ` · ${entry.variant}` : '');
    this.fullName = entry.model + (entry.variant ? ` (${entry.variant})` : '');
  }

  async read() {
    this.reading ??= chunk(this.chunk).then((bytes) => {
      this.values = unpacked(bytes, this.vocabulary.rows, this);
    });
    await this.reading;
    return this;
  }

  rewardText(row) {
    return fixed(this.values.reward(row), this.decimals);
  }

  /** The rank as it is shown: = where others have the same reward, ~ where numerical error could change it. */
  rankText(row) {
    return (
      (this.values.isTied(row) ? '=' : '') +
      (this.values.isCertified(row) ? '' : '~') +
      '#' +
      whole(this.values.rank[row])
    );
  }

  /** Share of the other candidates that are ranked higher: 0 the best, 1 the worst. */
  share(row) {
    return (this.values.rank[row] - 1) / Math.max(1, this.vocabulary.rows - 1);
  }
}
