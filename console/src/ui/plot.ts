// Loaded by the first chart that is shown.
import uPlot from "uplot";

export default uPlot;
