// Texts as they are shown: the counterpart of `figures.words.literal`. Every text reaches the page as textContent.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]|(?! )\s/u;
const NAMED = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\' };

function escaped(character) {
  if (character in NAMED) return NAMED[character];
  if (!HIDDEN.test(character)) return character;
  const code = character.codePointAt(0);
  const hex = (digits) => code.toString(16).padStart(digits, '0');
  return code < 0x100 ? `\\x${hex(2)}` : code < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
}

/** The text with everything in it visible, on one line: spaces at its ends as ␣, nothing as ∅. */
function literal(text) {
  if (text === '') return '∅';
  if (/^[!-[\]-~](?:[ -[\]-~]*[!-[\]-~])?$/.test(text)) return text; // most tokens: visible ASCII, no backslash
  const inner = text.replace(/^ +| +$/g, '');
  if (inner === '') return '␣'.repeat(text.length);
  const ahead = text.length - text.replace(/^ +/, '').length;
  const behind = text.length - text.replace(/ +$/, '').length;
  const carrier = /^\p{M}/u.test(inner) ? '◌' : '';
  return '␣'.repeat(ahead) + carrier + Array.from(inner, escaped).join('') + '␣'.repeat(behind);
}

/** A whole number with separators. */
const whole = (number) => number.toLocaleString('en-US');

/** A number to so many decimals, with a true minus sign and no negative zero. */
function fixed(number, decimals) {
  const text = number.toFixed(decimals);
  return Number(text) === 0 ? text.replace('-', '') : text.replace('-', '−');
}

/** An element with attributes and children; strings become text nodes, never markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, '');
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** A labelled select; options are [value, text] pairs. */
function choice(label, options, value, changed) {
  const select = element(
    'select',
    {},
    ...options.map(([key, text]) => element('option', { value: key }, text)),
  );
  select.value = value;
  select.addEventListener('change', () => changed(select.value));
  return element('label', {}, `${label} `, select);
}

/**
 * Rows of a vocabulary as CSV. Texts are JSON strings: nothing in them is lost, and none of them begins a formula in a
 * spreadsheet.
 */
function csv(vocabulary, columns, rows) {
  const cell = (value) => (/[",\r\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const head = ['candidate_id', 'text_json', 'kind', ...columns.flatMap((c) => [`reward ${c.fullName}`, `rank ${c.fullName}`])];
  const lines = Array.from(rows, (row) => [
    vocabulary.id(row),
    JSON.stringify(vocabulary.texts[row]),
    vocabulary.kind(row),
    ...columns.flatMap((c) => [c.values.reward(row).toFixed(c.decimals), c.values.rank[row]]),
  ]);
  return [head, ...lines].map((line) => line.map(cell).join(',')).join('\r\n') + '\r\n';
}

/** Offers a text as a file to be saved. */
function saved(name, text) {
  const link = element('a', {
    href: URL.createObjectURL(new Blob([text], { type: 'text/csv' })),
    download: name.replace(/[^\w.-]+/g, '-'),
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
