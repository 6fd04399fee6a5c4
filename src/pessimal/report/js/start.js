// Begins: whatever the page has data for.

for (const head of document.querySelectorAll('.sorted thead th')) {
  head.tabIndex = 0;
  head.onclick = () => {
    const falling = head.ariaSort !== 'descending';
    for (const other of head.parentNode.cells) other.ariaSort = null;
    head.ariaSort = falling ? 'descending' : 'ascending';
    const key = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[0].textContent;
    const compare = (a, b) => (head.cellIndex ? key(a) - key(b) : key(a).localeCompare(key(b)));
    const body = head.closest('table').tBodies[0];
    body.append(...[...body.rows].sort((a, b) => (falling ? compare(b, a) : compare(a, b))));
  };
  head.onkeydown = (event) => event.key === 'Enter' && head.onclick();
}

if (document.getElementById('explorer-index')) {
  const explorer = new Explorer(document.getElementById('explorer-box'), json('explorer-index'));
  explorer.scatter.choose(explorer.vocabulary, explorer.prompt);
  explorer.status.textContent = 'Reading …';
  explorer
    .open()
    .then(() => {
      document.getElementById('explorer').dataset.ready = String(Math.round(performance.now()));
      performance.mark('explorer usable');
    })
    .catch((error) => {
      explorer.status.textContent = `The explorer cannot be shown (${error.message}); a browser of 2023 or later can. All else on this page is there.`;
      throw error;
    });
}
