const rooms = new Map();
const show = (id, text) => (document.getElementById(id).textContent = text);

function draw() {
  const lines = [...rooms].sort().map(([room, state]) => {
    const line = document.createElement("li");
    line.textContent = `${room}: ${state}`;
    return line;
  });
  document.getElementById("board").replaceChildren(...lines);
}

async function refetch() {
  rooms.clear();
  for (const [room, state] of Object.entries(await (await fetch("rooms")).json())) rooms.set(room, state);
  draw();
}

const stream = new EventSource("stream/");
stream.onopen = () => show("connection", "live");
stream.onerror = () => show("connection", "reconnecting");
stream.addEventListener("ready", refetch); // what happens from here on is told
stream.addEventListener("must-refetch", refetch); // nobody can say what was missed
stream.onmessage = (message) => {
  const { data } = JSON.parse(message.data);
  rooms.set(data.room, data.state);
  draw();
};

document.getElementById("mark").onsubmit = async (event) => {
  event.preventDefault();
  const { room, state } = Object.fromEntries(new FormData(event.target));
  const written = await fetch(`rooms/${encodeURIComponent(room)}?state=${encodeURIComponent(state)}`, { method: "PUT" });
  const { receipt } = await written.json();
  let now = "processing";
  while (now === "processing") {
    show("write", now);
    now = (await (await fetch(`stream/?receipt=${receipt}&wait=20`)).json()).state;
  }
  show("write", now); // applied, or held: it could not be applied, and an operator sees it
};
