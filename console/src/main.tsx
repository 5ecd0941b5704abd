import "./style/main.css";
import "./theme";
import { render } from "preact";
import { App } from "./app";
import { listen } from "./live";
import { enter } from "./session";

const root = document.getElementById("app");
void enter().then(() => {
  listen();
  if (root) render(<App />, root);
});
