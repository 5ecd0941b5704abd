import{a,b,c,d,e}from"./chunk-HBTEP6TG.js";import"./chunk-IVCZZNGC.js";import"./chunk-GY434X63.js";import"./chunk-GMSRVF4Z.js";export{e as Rows,a as STATUS,c as State,d as default,b as to};
