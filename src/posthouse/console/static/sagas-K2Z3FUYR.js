import{a,b,c,d,e}from"./chunk-O2EDVGZM.js";import"./chunk-D335XX6A.js";export{e as Rows,a as STATUS,c as State,d as default,b as to};
