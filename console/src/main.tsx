import "./style/main.css";
import "./theme";
import { render } from "preact";
import { stranger } from "./api";
import { App } from "./app";
import { listen } from "./live";
import { enter } from "./session";

const root = document.getElementById("app");
void enter().then(() => {
  if (!stranger.value) listen();
  if (root) render(<App />, root);
});
